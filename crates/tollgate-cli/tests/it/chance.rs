//! What campaigns share: their size, faults by chance, and commands that bear witness.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Pseudorandom numbers, the same in every run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }
}

/// The number of tasks and of those who do them, which this variable may change.
pub(crate) fn size(variable: &str, usual: (usize, usize)) -> (usize, usize) {
    let Ok(text) = std::env::var(variable) else { return usual };
    let (tasks, workers) = text.split_once(',').unwrap();
    (tasks.parse().unwrap(), workers.parse().unwrap())
}

/// Writes a program.
pub(crate) fn executable(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
