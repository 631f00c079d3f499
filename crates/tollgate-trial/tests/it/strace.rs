//! Failures at chosen system calls, injected by `strace`.
//!
//! `strace` sees every call of the process, even those that bypass the C library, and can answer the Nth call of a name
//! with an error or a signal. `SIGKILL` is delivered on entry, so the call does not happen. `SIGSTOP` is delivered after
//! the call.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tollgate_testing::strace;

/// Every call with which a process could change a file, a folder or their attributes.
const CHANGING: &str = "rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,rmdir,write,pwrite64,\
    writev,pwritev,pwritev2,fsync,fdatasync,sync_file_range,syncfs,truncate,ftruncate,fallocate,copy_file_range,sendfile,\
    creat,mkdir,mkdirat,mknodat,chmod,fchmod,fchmodat,chown,lchown,fchown,fchownat,setxattr,fsetxattr,fremovexattr,\
    utimensat";

/// Calls that change nothing but matter: opening a file, and asking for quiet.
const OTHERS: &str = "open,openat,openat2,fcntl";

pub(crate) const TRIAL: &str = env!("CARGO_BIN_EXE_trial");

/// One system call of a recorded run, with what it means for a guarded file.
#[derive(Debug, Clone)]
pub(crate) struct Call(strace::Call);

impl Deref for Call {
    type Target = strace::Call;

    fn deref(&self) -> &strace::Call {
        &self.0
    }
}

impl Call {
    /// Whether the call changes something on disk.
    pub(crate) fn changes(&self) -> bool {
        CHANGING.split(',').any(|name| name == self.name) || self.line.contains("O_CREAT")
    }

    pub(crate) fn asks_for_quiet(&self) -> bool {
        self.line.contains("F_SETLEASE, F_RDLCK") || self.line.contains("F_GETLEASE")
    }
}

/// A command line of the trial program, to be run under `strace`.
pub(crate) fn traced(log: &Path, injections: &[String], arguments: &[&str]) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-s", "16", "-e"]).arg(format!("trace={CHANGING},{OTHERS}"));
    for injection in injections {
        command.args(["-e", injection]);
    }
    // Variables that cargo sets for tests make the loader search for a long time.
    command.env_remove("LD_LIBRARY_PATH").arg("-o").arg(log).arg(TRIAL).args(arguments);
    command
}

/// How a run ended.
#[derive(Debug)]
#[allow(dead_code, reason = "shown when a trial fails")]
pub(crate) enum End {
    Done,
    Refused(String),
    Fault(String),
    Killed,
}

pub(crate) fn run(injections: &[String], arguments: &[&str]) -> End {
    end(&output(&mut traced(Path::new("/dev/null"), injections, arguments)))
}

pub(crate) fn output(command: &mut Command) -> Output {
    spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
        .wait_with_output()
        .unwrap()
}

/// A child has copies of all our descriptors until it executes its program. Until then it also holds our locks, and another
/// thread that asks for one of them without waiting is refused. So no child starts while another thread uses the library in
/// this process.
pub(crate) static IN_PROCESS: RwLock<()> = RwLock::new(());

pub(crate) fn spawn(command: &mut Command) -> Child {
    let _alone = IN_PROCESS.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn().unwrap_or_else(|error| missing(&error))
}

fn missing(error: &io::Error) -> ! {
    panic!(
        "cannot run `strace`: {error}\nhint: these trials kill processes at chosen system calls; install it with \
         `apt-get install strace`, `dnf install strace` or `pacman -S strace`"
    )
}

pub(crate) fn end(output: &Output) -> End {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match (output.status.code(), output.status.signal()) {
        (Some(0), _) => End::Done,
        (Some(1), _) => End::Refused(text(&output.stdout)),
        (Some(2), _) => End::Fault(text(&output.stderr)),
        (_, Some(9)) | (Some(137), _) => End::Killed,
        (code, signal) => {
            panic!("the program ended with {code:?}, signal {signal:?}: {}", text(&output.stderr))
        }
    }
}

/// Runs the program undisturbed and returns its calls, from the first one that concerns `root`.
pub(crate) fn calls(root: &Path, injections: &[String], arguments: &[&str]) -> (End, Vec<Call>) {
    let log = root.with_extension("strace");
    let output = output(&mut traced(&log, injections, arguments));
    let calls = parse(&fs::read_to_string(&log).unwrap(), root);
    fs::remove_file(&log).unwrap();
    assert!(!calls.is_empty(), "`strace` saw nothing: {output:?}");
    (end(&output), calls)
}

/// A process that is stopped after a call, by an injected `signal=STOP`.
pub(crate) struct StoppedRun {
    child: Child,
    log: PathBuf,
    pid: Pid,
    stops: usize,
}

impl StoppedRun {
    /// Starts the program and waits until it is stopped.
    pub(crate) fn start(root: &Path, injections: &[String], arguments: &[&str]) -> Self {
        let log = root.with_extension("strace");
        let mut command = traced(&log, injections, arguments);
        let child = spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        let pid = stopped(&log, 1);
        Self { child, log, pid, stops: 1 }
    }

    /// Continues until the next stop.
    pub(crate) fn go_on_to_next_stop(&mut self) {
        kill_process(self.pid, Signal::CONT).unwrap();
        self.stops += 1;
        stopped(&self.log, self.stops);
    }

    pub(crate) fn goes_on(self) -> End {
        self.ends_after(Signal::CONT)
    }

    pub(crate) fn ends_after(self, signal: Signal) -> End {
        self.ends_with_log(signal).0
    }

    /// The same, with everything that `strace` saw.
    pub(crate) fn ends_with_log(self, signal: Signal) -> (End, String) {
        kill_process(self.pid, signal).unwrap();
        let output = self.child.wait_with_output().unwrap();
        let log = fs::read_to_string(&self.log).unwrap();
        fs::remove_file(&self.log).unwrap();
        (end(&output), log)
    }
}

/// Waits until the process is stopped for the `nth` time.
fn stopped(log: &Path, nth: usize) -> Pid {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let text = fs::read_to_string(log).unwrap_or_default();
        let mut stops = text.lines().filter(|line| line.ends_with("--- stopped by SIGSTOP ---"));
        if let Some(line) = stops.nth(nth - 1) {
            return Pid::from_raw(line.split(' ').next().unwrap().parse().unwrap()).unwrap();
        }
        assert!(!text.contains("+++ exited"), "the process was not stopped: {text}");
        assert!(Instant::now() < deadline, "the process does not continue: {text}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Without the calls of the loader, and without writes to standard output.
fn parse(log: &str, root: &Path) -> Vec<Call> {
    let root = root.to_str().unwrap();
    let calls = strace::calls(log).into_iter().skip_while(|call| !call.line.contains(root));
    calls.filter(|call| !call.line.contains("(1<")).map(Call).collect()
}

/// A folder for one test, on the file system of the checkout.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Copies a folder. Two names of one file stay two names of one file, because a crash may leave that.
pub(crate) fn copy(from: &Path, to: &Path) {
    fn walk(from: &Path, to: &Path, linked: &mut HashMap<u64, PathBuf>) {
        fs::create_dir(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                walk(&from, &to, linked);
            } else if let Some(first) = linked.get(&metadata.ino()) {
                fs::hard_link(first, &to).unwrap();
            } else {
                fs::copy(&from, &to).unwrap();
                linked.insert(metadata.ino(), to);
            }
        }
        fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    }
    walk(from, to, &mut HashMap::new());
}
