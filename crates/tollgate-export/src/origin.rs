//! Where exported events are from.

/// Which ledger the events are from, for receivers that get several.
#[derive(Debug, Clone)]
pub struct ExportOrigin {
    /// An identifier of the ledger that does not change, as a URI.
    pub uri: String,
    /// The version of tollgate.
    pub version: &'static str,
    /// The folder of the workspace, relative to the root of its repository; empty if it is the root.
    pub folder: String,
    /// The name that the user has as an agent, at the command line without another name.
    pub user: String,
}
