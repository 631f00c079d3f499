//! The agent program that called a hook, so that other processes can check whether it is alive.

use serde::{Deserialize, Serialize};

use tollgate_base::sys;

/// A process. Its start time tells it apart from a later process with the same id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pid: u32,
    started: u64,
}

impl Process {
    /// The nearest parent process that is not a shell; `None` if that cannot be found out.
    pub(crate) fn of_host() -> Option<Self> {
        let mut pid = u32::try_from(rustix::process::getppid()?.as_raw_nonzero().get()).ok()?;
        // The program may run the hook through a shell, which may run another. More levels are not a hook.
        for _ in 0..3 {
            let found = sys::process(pid).filter(|found| !found.is_zombie)?;
            let shells = ["sh", "dash", "bash", "zsh", "fish", "busybox", "env"];
            if !shells.contains(&found.name.as_str()) {
                // Process 1 adopts processes whose parent has died.
                return (pid > 1).then_some(Self { pid, started: found.started });
            }
            pid = found.parent;
        }
        None
    }

    pub(crate) fn is_alive(&self) -> bool {
        sys::process(self.pid).is_some_and(|found| found.started == self.started && !found.is_zombie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_it_is_killed() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process { pid: child.id(), started: sys::process(child.id()).unwrap().started };
        assert!(process.is_alive());
        assert!(!Process { started: process.started + 1, ..process.clone() }.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive());
    }
}
