//! What the kernel says about a process.

/// A process that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningProcess {
    /// The name of its program, which may be cut off.
    pub name: String,
    /// The process that started it, or adopted it.
    pub parent: u32,
    /// When it was started, in a unit of the kernel's. Tells it apart from a later process with the same id.
    pub started: u64,
    /// It has ended, and its parent has not asked for that yet.
    pub is_zombie: bool,
}
