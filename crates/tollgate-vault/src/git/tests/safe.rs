//! Nothing that the configuration of the repository names is run, and no program that tollgate runs can fill the memory.
//!
//! Agents may be able to write `.git/config`. Each test puts a command there that leaves a witness, and takes a whole task
//! through the store, with a round of the person's working tree.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// A clone whose configuration an agent has written, and the file that its commands leave.
struct Trap {
    world: World,
    clone: PathBuf,
    witness: PathBuf,
}

impl Trap {
    fn new() -> Self {
        let world = World::new();
        let clone = world.person("a");
        let witness = world.folder.path().join("witness");
        Self { world, clone, witness }
    }

    fn set(&self, key: &str, value: &str) {
        git(&self.clone, &["config", key, value]);
    }

    /// A command line that leaves the witness and goes on with another command.
    fn then(&self, command: &str) -> String {
        format!("touch {}; {command}", self.witness.display())
    }

    /// A program that leaves the witness and fails.
    fn program(&self, path: &Path) -> String {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("#!/bin/sh\n{}\n", self.then("exit 1"))).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn open(&self) -> Machine {
        Machine::open(self.clone.clone(), |options| options.patience = Duration::from_secs(20))
    }

    /// Everything works, and nothing of the agent's was run.
    fn works(&self) {
        let machine = self.open();
        machine.add("x", "text\n");
        let followed = machine.sync().followed;
        let claimed = machine.claim("x", "blue");
        assert_eq!(machine.release(&claimed), State::Done);
        machine.store.checkup().unwrap();
        assert_eq!(self.world.on_branch(), ["Done/x.md"]);
        assert_eq!(followed.unwrap().word, "forward");
        assert!(!self.witness.exists(), "a command of the repository's configuration was run");
    }

    /// The remote cannot be used, and nothing of the agent's was run.
    fn fails(&self) -> Fault {
        let fault = self.open().store.sync().unwrap_err();
        assert!(!self.witness.exists(), "a command of the repository's configuration was run: {fault}");
        fault
    }
}

#[test]
fn the_programs_of_the_remote_are_gits_own() {
    for key in ["uploadpack", "receivepack"] {
        let trap = Trap::new();
        trap.set(
            &format!("remote.origin.{key}"),
            &trap.then(&format!("git-{}", key.replace("pack", "-pack"))),
        );
        trap.works();
    }
}

#[test]
fn no_hook_and_no_monitor_is_run() {
    let trap = Trap::new();
    trap.set("core.fsmonitor", &trap.program(&trap.world.folder.path().join("monitor")));
    let hooks = trap.world.folder.path().join("hooks");
    for hook in ["pre-push", "reference-transaction", "post-merge", "post-checkout", "post-index-change"] {
        trap.program(&hooks.join(hook));
        trap.program(&trap.clone.join(".git/hooks").join(hook));
    }
    trap.set("core.hooksPath", hooks.to_str().unwrap());
    trap.works();
}

#[test]
fn no_filter_is_run() {
    let trap = Trap::new();
    let person = trap.world.person("p");
    fs::write(person.join(".gitattributes"), "* filter=evil merge=evil diff=evil\n").unwrap();
    git(&person, &["add", "-A"]);
    git(&person, &["commit", "--quiet", "-m", "attributes"]);
    git(&person, &["push", "--quiet", "origin", "HEAD:main"]);
    for key in ["filter.evil.smudge", "filter.evil.clean", "merge.evil.driver", "diff.evil.textconv"] {
        trap.set(key, &trap.then("cat"));
    }
    trap.works();
}

#[test]
fn no_settings_are_included() {
    let trap = Trap::new();
    let more = trap.clone.join(".git/more");
    fs::write(&more, format!("[remote \"origin\"]\nuploadpack = \"{}\"\n", trap.then("git-upload-pack")))
        .unwrap();
    trap.set("include.path", more.to_str().unwrap());
    git(&trap.clone, &["config", "extensions.worktreeConfig", "true"]);
    git(&trap.clone, &["config", "--worktree", "remote.origin.receivepack", &trap.then("git-receive-pack")]);
    trap.works();
}

#[test]
fn ssh_and_the_proxy_are_the_users_own() {
    for (url, key) in
        [("ssh://127.0.0.1:1/r.git", "core.sshCommand"), ("git://127.0.0.1:1/r.git", "core.gitProxy")]
    {
        let trap = Trap::new();
        trap.set("remote.origin.url", url);
        trap.set(key, &trap.program(&trap.world.folder.path().join("connect")));
        assert_eq!(trap.fails().code(), "REMOTE_UNREACHABLE", "{key}");
    }
}

#[test]
fn no_credential_helper_is_run() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let answer = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\
                          Connection: close\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    for key in ["credential.helper".to_owned(), format!("credential.{url}.helper"), "core.askPass".to_owned()]
    {
        let trap = Trap::new();
        trap.set("remote.origin.url", &format!("{url}/r.git"));
        trap.set(&key, &trap.program(&trap.world.folder.path().join("helper")));
        assert_eq!(trap.fails().code(), "REMOTE_UNREACHABLE", "{key}");
    }
}

#[test]
fn no_url_is_a_command() {
    let trap = Trap::new();
    let ext = format!("ext::{}", trap.program(&trap.world.folder.path().join("connect")));
    trap.set("protocol.ext.allow", "always");
    trap.set("remote.origin.url", &ext);
    trap.fails();
    // The same by a rewritten URL, and by naming the helper.
    trap.set("remote.origin.url", "elsewhere:r.git");
    trap.set(&format!("url.{ext} .insteadOf"), "elsewhere:");
    trap.fails();
    let trap = Trap::new();
    trap.set("protocol.ext.allow", "always");
    trap.set("remote.origin.vcs", "ext");
    trap.set("remote.origin.url", &trap.program(&trap.world.folder.path().join("connect")));
    trap.fails();
}

/// git fetches a missing object from the remote of this name, and passes the name on as an argument.
#[test]
fn no_name_of_a_remote_is_an_option() {
    let trap = Trap::new();
    trap.set("core.repositoryFormatVersion", "1");
    trap.set("extensions.partialClone", &format!("--upload-pack={}", trap.then("git-upload-pack")));
    let machine = trap.open();
    let tip = machine.sync().tip;
    assert!(!machine.store.tree.branch.is_ancestor(&"1".repeat(40), &tip).unwrap());
    assert!(!trap.witness.exists());
}

/// A push to a repository on this disk runs its hooks. One that agents can write to is not used.
#[test]
fn a_remote_inside_the_working_tree_is_refused() {
    let trap = Trap::new();
    let (inside, hook) = (trap.clone.join("evil.git"), "hooks/pre-receive");
    fs::create_dir_all(trap.clone.join("vault")).unwrap();
    git(&trap.clone, &["clone", "--quiet", "--bare", trap.world.remote().to_str().unwrap(), "evil.git"]);
    trap.program(&inside.join(hook));
    let path = inside.display();
    for url in
        ["evil.git".to_owned(), path.to_string(), format!("file://{path}"), format!("file://{path}/%2e")]
    {
        trap.set("remote.origin.url", &url);
        let opened = GitStore::open(&trap.clone.join("vault"), options(&Arc::default()));
        assert!(opened.is_err_and(|fault| fault.to_string().contains("inside")), "{url}");
    }
    trap.set("remote.origin.url", &format!("file://{}", trap.world.remote().display()));
    trap.set("remote.origin.pushurl", "evil.git");
    assert!(GitStore::open(&trap.clone.join("vault"), options(&Arc::default())).is_err());
    assert!(!trap.witness.exists());
}

/// Otherwise the person's branch would be checked out into any folder.
#[test]
fn the_working_tree_is_where_the_repository_is() {
    let trap = Trap::new();
    trap.set("core.worktree", trap.world.folder.path().to_str().unwrap());
    fs::create_dir_all(trap.clone.join("vault")).unwrap();
    assert!(GitStore::open(&trap.clone.join("vault"), options(&Arc::default())).is_err());
}

/// The agent writes it while the store is open.
#[test]
fn a_setting_that_comes_later_is_ignored_and_a_new_url_is_used() {
    let trap = Trap::new();
    let machine = trap.open();
    machine.sync();
    trap.set("remote.origin.uploadpack", &trap.then("git-upload-pack"));
    machine.sync();
    assert!(!trap.witness.exists());
    trap.set("remote.origin.url", "file:///nowhere/at/all.git");
    assert_eq!(machine.store.sync().unwrap_err().code(), "REMOTE_UNREACHABLE");
}

/// A git that writes far more than any git has to say, and does not end.
fn talkative(folder: &Path, stream: &str) -> PathBuf {
    let path = folder.join(format!("git-{stream}"));
    let text = format!(
        "#!/bin/sh\ncase \" $* \" in *\" fetch \"*) yes | head -c 300000000 >&{stream}; exec sleep 1000;; esac\nexec git \"$@\"\n"
    );
    let write = r#"printf '%s' "$1" > "$0" && chmod +x "$0""#;
    assert!(Command::new("sh").args(["-c", write]).arg(&path).arg(text).status().unwrap().success());
    path
}

#[test]
fn a_git_whose_output_never_ends_is_stopped() {
    let world = World::new();
    for stream in ["2", "1"] {
        let program = talkative(world.folder.path(), stream);
        let machine = world.machine_with(&format!("c{stream}"), |options| options.program = program);
        let fault = machine.store.sync().unwrap_err();
        assert_eq!(fault.code(), "REMOTE_UNREACHABLE");
        assert!(fault.to_string().contains("without end") && fault.to_string().len() < 500, "{fault}");
    }
}
