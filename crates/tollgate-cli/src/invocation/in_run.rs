//! The run in which this process is, for which it works, or which it starts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tollgate::name::Agent;
use tollgate_base::private;
use tollgate_guard::git_config::brings_command;
use tollgate_run::door::INNER;
use tollgate_run::{NewSettings, RunLevel, SetAside};

use super::{Invocation, from_environment};
use crate::error::CliError;
use crate::host::MissingSettings;
use crate::replace::{FileAccess, make_folder};
use crate::surroundings::{CARRIED, Surroundings};

impl Invocation {
    /// The folder for state in the view of a transaction, where that of the workspace cannot be written.
    pub(crate) fn inner_state(&self) -> Option<PathBuf> {
        let in_view = self.surroundings.run == Some(RunLevel::Transaction);
        self.surroundings.run_folder.as_ref().filter(|_| in_view).map(|folder| folder.join(INNER))
    }

    /// Whether a command of a run has started this process, or makes the call that it carries out.
    pub(crate) fn is_for_a_run(&self) -> bool {
        self.surroundings.run.is_some() || self.surroundings.carried.is_some()
    }

    /// The agent of the run for which this process carries out a call.
    pub(crate) fn carried_for(&self) -> Result<Option<Agent>, CliError> {
        let agent = self.surroundings.carried.as_ref().filter(|agent| !agent.is_empty());
        agent.map(|agent| from_environment(CARRIED, agent)).transpose()
    }

    /// What a command sees outside of the workspace and cannot change: what agents must not change there, such as agreements, tokens
    /// and the turns of all agents. A missing folder of the user is made, so that no command makes it first.
    pub(crate) fn closed_folders(&self, root: &Path) -> Vec<PathBuf> {
        let Surroundings { state, config, .. } = &self.surroundings;
        for folder in [state, config].into_iter().flatten() {
            let _ = make_folder(&folder.join("tollgate"), FileAccess::Private);
        }
        let outside = self.protected().paths.into_iter().filter(|path| path.is_absolute());
        let real = outside.filter_map(|path| path.canonicalize().ok());
        real.filter(|path| !root.starts_with(path)).collect()
    }

    /// Looks, when a run has ended, for settings in the user's home that did not exist before, and that disable the guard of an agent
    /// program or name commands for git. It sets them aside. Those that exist are closed in the view.
    pub(crate) fn new_settings(&self) -> NewSettings {
        let home = Surroundings::home().map(|home| private::without_links(&home));
        let of_programs = MissingSettings::find(home);
        let of_git: Vec<_> = self.git_settings().into_iter().filter(|file| !file.exists()).collect();
        Rc::new(move || {
            let of_git = of_git.iter().filter(|file| brings_command(file));
            let mut files: Vec<_> = of_git.filter_map(|file| set_aside(file)).collect();
            while let Some(file) = of_programs.disabling().and_then(set_aside) {
                files.push(file);
            }
            files
        })
    }

    /// The folders in the user's home in which these files and folders are, and those above. A command could otherwise rename such a
    /// folder, and make another one with other files. Outermost first.
    pub(crate) fn fixed_folders(&self, closed: &[PathBuf], root: &Path) -> Vec<PathBuf> {
        let Some(home) = Surroundings::home().and_then(|home| home.canonicalize().ok()) else {
            return Vec::new();
        };
        let is_around = |folder: &&Path| folder.starts_with(&home) && *folder != home;
        let files = closed.iter().filter(|path| path.exists() && !path.starts_with(root));
        let folders = files.flat_map(|file| file.ancestors().skip(1).take_while(is_around));
        let mut folders: Vec<_> =
            folders.filter(|folder| !root.starts_with(folder)).map(Path::to_owned).collect();
        folders.sort();
        folders.dedup();
        folders
    }
}

/// Gives a file a name beside it that no program reads.
fn set_aside(file: &Path) -> Option<SetAside> {
    let name = |number: u32| {
        let mut name = OsString::from(file);
        name.push(format!(".refused-{number}"));
        PathBuf::from(name)
    };
    (1..=1000).map(name).find_map(|kept| {
        match renameat_with(CWD, file, CWD, &kept, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => None,
            renamed => Some(renamed.ok().map(|()| SetAside { file: file.to_owned(), kept })),
        }
    })?
}
