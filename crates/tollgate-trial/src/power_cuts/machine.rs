//! A machine whose power can be cut: a real file system of the kernel on a recorded disk, and the programs that run there.
//!
//! On the disk are the workspace `w`, a clone with a vault over git `g`, and the user's home and state. The git remote is
//! elsewhere: another machine, which keeps its power. Its state at every moment is kept, because a cut takes this machine
//! back in time, and the remote must be as it was then.
//!
//! Everything is mounted in a mount namespace of this process, so nothing stays mounted when it ends, however it ends.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::fuse;
use crate::recorded_disk::{Blocks, RecordedDisk};

pub(crate) type Result<T> = std::result::Result<T, String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

impl FileSystem {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// About the smallest size that the file system accepts.
    pub(crate) fn size(self) -> u64 {
        match self {
            Self::Ext4 => 64 << 20,
            Self::Btrfs => 128 << 20,
            Self::Xfs => 320 << 20,
        }
    }

    /// How many bytes a disk writes together or not at all. XFS and btrfs cannot be mounted if a disk has written a part of
    /// one of their blocks of 4 KiB, for instance of the superblock of btrfs.
    pub(crate) fn sectors(self) -> [usize; 2] {
        match self {
            Self::Ext4 => [512, 4096],
            Self::Xfs | Self::Btrfs => [4096, 4096],
        }
    }

    /// Options of the mount. The recorded disk takes no discards.
    fn options(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Xfs => "noatime",
            Self::Btrfs => "noatime,nodiscard",
        }
    }

    /// Why this machine cannot use it.
    pub(crate) fn missing(self) -> Option<String> {
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        if !known.lines().any(|line| line.trim_start() == self.name()) {
            return Some(format!("the kernel has no {}", self.name()));
        }
        let program = format!("mkfs.{}", self.name());
        let found = Command::new(&program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_err().then(|| format!("`{program}` is not installed"))
    }

    /// A new file system, made in this file.
    fn format(self, path: &Path) -> Result<Blocks> {
        let file = fs::File::create(path).map_err(at(path))?;
        file.set_len(self.size()).map_err(at(path))?;
        let options: &[&str] = match self {
            // Without work in the background.
            Self::Ext4 => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            Self::Xfs | Self::Btrfs => &["-q", "-f"],
        };
        let mut make = Command::new(format!("mkfs.{}", self.name()));
        run(make.args(options).arg(path), b"")?;
        let blocks = Blocks::of_file(path).map_err(at(path))?;
        fs::remove_file(path).map_err(at(path))?;
        Ok(blocks)
    }
}

/// Mounts a disk: the kind of its file system, options, the file, the folder. The device is freed as soon as it is not mounted
/// any more. A program of its own does all of it, so that the device is also freed if the campaign is killed at that moment.
const MOUNT: &str = r#"
trap '' HUP INT TERM
device=$(losetup --find --show --direct-io=on "$2") || exit
mount -t "$0" -o "$1" "$device" "$3"
status=$?
losetup --detach "$device"
exit $status
"#;

pub(crate) fn at(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("`{}`: {error}", path.display())
}

/// Runs a program that must succeed. Returns what it printed.
pub(crate) fn run(command: &mut Command, input: &[u8]) -> Result<String> {
    let name = format!("{:?} {:?}", command.get_program(), command.get_args().collect::<Vec<_>>());
    let failed = |error: std::io::Error| format!("{name}: {error}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // It may end before it has read everything.
        let _ = stdin.write_all(input);
    }
    let output = child.wait_with_output().map_err(failed)?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    Err(format!("{name}: {}\n{printed}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

pub(crate) struct Machine {
    folder: PathBuf,
    pub(crate) kind: FileSystem,
    disk: Arc<Mutex<RecordedDisk>>,
    tollgate: PathBuf,
    pub(crate) has_git: bool,
}

impl Machine {
    /// A machine with a new file system, in a new folder.
    pub(crate) fn new(folder: &Path, kind: FileSystem) -> Result<(Self, Blocks)> {
        for name in ["fuse", "root", "memory", "remotes"] {
            fs::create_dir_all(folder.join(name)).map_err(at(folder))?;
        }
        let blocks = kind.format(&folder.join("image"))?;
        let disk = Arc::new(Mutex::new(RecordedDisk::default()));
        fuse::serve(&folder.join("fuse"), kind.size(), Arc::clone(&disk))
            .map_err(|error| format!("cannot mount a FUSE file system: {error}"))?;
        // tollgate must see that the machine was started again.
        let boot_id = folder.join("boot_id");
        fs::write(&boot_id, "").map_err(at(&boot_id))?;
        let real = Path::new("/proc/sys/kernel/random/boot_id");
        mount_bind(&boot_id, real).map_err(|error| at(real)(error.into()))?;
        let this = std::env::current_exe().unwrap_or_default();
        let tollgate = this.with_file_name("tollgate");
        let has_git = Command::new("git").arg("--version").output().is_ok();
        Ok((Self { folder: folder.to_owned(), kind, disk, tollgate, has_git }, blocks))
    }

    /// A folder on the disk.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join("root").join(name)
    }

    /// The bare repository on the other machine.
    pub(crate) fn remote(&self) -> PathBuf {
        self.folder.join("remote.git")
    }

    pub(crate) fn disk(&self) -> MutexGuard<'_, RecordedDisk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power is on, and this is on the disk. The kernel's file system repairs itself.
    pub(crate) fn start(&self, blocks: Blocks) -> Result<()> {
        *self.disk() = RecordedDisk::new(blocks);
        let boot_id = format!("{:036x}\n", nanoseconds(SystemTime::now()));
        fs::write(self.folder.join("boot_id"), boot_id).map_err(at(&self.folder))?;
        let memory = self.folder.join("memory");
        fs::remove_dir_all(&memory).and_then(|()| fs::create_dir(&memory)).map_err(at(&memory))?;
        if self.kind == FileSystem::Btrfs {
            // Otherwise the kernel takes the disk for an older copy of the one that it knows.
            run(Command::new("btrfs").args(["device", "scan", "--forget"]), b"")?;
        }
        let mut mount = Command::new("sh");
        mount.args(["-c", MOUNT, self.kind.name(), self.kind.options()]);
        mount.arg(self.folder.join("fuse").join(fuse::DISK)).arg(self.path(""));
        run(&mut mount, b"").map(drop).map_err(|error| format!("the file system cannot be mounted: {error}"))
    }

    /// Unmounts the disk, and returns what was recorded since the start. What the unmounting writes is recorded, too.
    pub(crate) fn stop(&self) -> Result<RecordedDisk> {
        let mut patience = 100;
        loop {
            match unmount(self.path(""), UnmountFlags::empty()) {
                Ok(()) => break,
                Err(Errno::BUSY) if patience > 0 => {
                    patience -= 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(format!("the disk cannot be unmounted: {error}")),
            }
        }
        Ok(std::mem::take(&mut *self.disk()))
    }

    /// tollgate in this workspace.
    pub(crate) fn command(&self, workspace: &str, words: &[&str]) -> Command {
        let mut command = Command::new(&self.tollgate);
        command.args(["-C", "."]).args(words).current_dir(self.path(workspace));
        self.surround(&mut command);
        command
    }

    /// git, in this folder of the disk or outside of it.
    pub(crate) fn git(&self, folder: &Path, words: &[&str]) -> Result<String> {
        let mut git = Command::new("git");
        git.arg("-C")
            .arg(folder)
            .args(["-c", "user.name=ada", "-c", "user.email=ada@example.org"])
            .args(words);
        self.surround(&mut git);
        run(&mut git, b"")
    }

    fn surround(&self, command: &mut Command) {
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("USER", "ada");
        command.env("HOME", self.path("home")).env("XDG_STATE_HOME", self.path("state"));
        command.env("XDG_RUNTIME_DIR", self.folder.join("memory")).env("GIT_CONFIG_NOSYSTEM", "1");
    }

    /// Runs tollgate, which must succeed.
    pub(crate) fn must(&self, workspace: &str, words: &[&str], input: &str) -> Result<String> {
        run(&mut self.command(workspace, words), input.as_bytes())
    }

    /// Makes the remote, with one task. It keeps a copy of itself after each push, named after the time.
    pub(crate) fn make_remote(&self) -> Result<()> {
        let (remote, seed) = (self.remote(), self.folder.join("seed"));
        for folder in [&remote, &seed] {
            let _ = fs::remove_dir_all(folder);
        }
        let remotes = self.folder.join("remotes");
        fs::remove_dir_all(&remotes).and_then(|()| fs::create_dir(&remotes)).map_err(at(&remotes))?;
        let names = [&remote, &seed].map(|path| path.display().to_string());
        self.git(&self.folder, &["init", "--quiet", "--bare", "-b", "main", &names[0]])?;
        self.git(&self.folder, &["init", "--quiet", "-b", "main", &names[1]])?;
        for (name, text) in [(".gitignore", ".tollgate/\n"), ("vault/Needs_Action/.gitkeep", "")] {
            let path = seed.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&seed)).map_err(at(&path))?;
            fs::write(&path, text).map_err(at(&path))?;
        }
        self.git(&seed, &["add", "-A"])?;
        self.git(&seed, &["commit", "--quiet", "-m", "first"])?;
        self.git(&seed, &["push", "--quiet", &names[0], "main"])?;
        // The refs have changed before the hook takes the time, and the client waits until the hook has ended.
        let hook = remote.join("hooks/post-receive");
        let script =
            "#!/bin/sh\ntime=$(date +%s%N)\ncp -r . ../remotes/new && mv ../remotes/new ../remotes/$time\n";
        fs::write(&hook, script).map_err(at(&hook))?;
        run(Command::new("chmod").arg("755").arg(&hook), b"")?;
        copy(&remote, &self.folder.join("remotes/0"))
    }

    /// Makes the remote what it was at this time.
    pub(crate) fn turn_remote_back(&self, time: SystemTime) -> Result<()> {
        let time = nanoseconds(time);
        let remotes = self.folder.join("remotes");
        let mut times: Vec<u128> = Vec::new();
        for entry in fs::read_dir(&remotes).map_err(at(&remotes))? {
            times.extend(entry.map_err(at(&remotes))?.file_name().to_string_lossy().parse::<u128>());
        }
        let then = times.into_iter().filter(|then| *then <= time).max().unwrap_or(0);
        fs::remove_dir_all(self.remote()).map_err(at(&self.remote()))?;
        copy(&remotes.join(then.to_string()), &self.remote())?;
        // From now on this is the latest, whatever was pushed after other cuts.
        copy(&self.remote(), &remotes.join(nanoseconds(SystemTime::now()).to_string()))
    }
}

fn nanoseconds(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp").arg("-r").arg(from).arg(to), b"").map(drop)
}
