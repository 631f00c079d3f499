//! `install.sh`, with a release in a folder.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::files::root;
use crate::world::{Ran, Run, World, hash};

const TARGET: &str = "x86_64-unknown-linux-musl";

/// A release with a program that says its version, in a folder, and a home.
struct Released {
    world: World,
}

impl Released {
    fn new(version: &str) -> Self {
        let released = Self { world: World::bare() };
        released.publish(version, &format!("download/v{version}"));
        released.publish(version, "latest/download");
        released
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.world.path("releases").join(name)
    }

    fn publish(&self, version: &str, name: &str) {
        let folder = self.folder(name);
        fs::create_dir_all(&folder).unwrap();
        let program = self.world.path("tollgate");
        fs::write(&program, format!("#!/bin/sh\necho 'tollgate {version}'\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let archive = format!("tollgate-{TARGET}.tar.gz");
        let mut pack = Command::new("tar");
        pack.arg("-czf").arg(folder.join(&archive)).arg("-C").arg(self.world.root());
        assert!(pack.arg("tollgate").status().unwrap().success());
        let sum = hash(fs::read(folder.join(&archive)).unwrap());
        fs::write(folder.join("SHA256SUMS"), format!("{}  other.tar.gz\n{sum}  {archive}\n", hash("x")))
            .unwrap();
    }

    /// `install.sh` with these arguments, in the home of a user.
    fn script(&self, words: &[&str]) -> Run<'_> {
        let script = root().join("install.sh");
        let all = ["sh", script.to_str().unwrap(), "--target", TARGET];
        let run = self.world.program("/usr/bin/env", all.into_iter().chain(words.iter().copied()));
        run.env("TOLLGATE_RELEASES", format!("file://{}", self.world.path("releases").display()))
    }

    fn home(&self, name: &str) -> PathBuf {
        self.world.tmp().join("home").join(name)
    }
}

fn program_says(path: &Path) -> String {
    String::from_utf8(Command::new(path).output().unwrap().stdout).unwrap()
}

/// The files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { found.extend(files(&entry)) } else { found.push(entry) }
    }
    found
}

#[track_caller]
fn nothing_was_installed(released: &Released, ran: Ran, why: &str) {
    let ran = ran.is(1);
    assert!(ran.stderr().contains(why) && ran.stderr().contains("hint: "), "{ran}");
    assert_eq!(files(&released.home("")), Vec::<PathBuf>::new());
}

#[test]
fn a_verified_program_is_installed_for_the_user_and_replaces_an_older_one() {
    let released = Released::new("1.0.0");
    let installed = released.home(".local/bin/tollgate");
    let ran = released.script(&["--version", "1.0.0"]).ends().is(0);
    assert_eq!(program_says(&installed), "tollgate 1.0.0\n");
    for word in ["verified: SHA-256", "installed", "is not in PATH", "next: "] {
        assert!(ran.stdout().contains(word), "{word}: {ran}");
    }
    released.publish("2.0.0", "latest/download");
    released.script(&[]).ends().is(0);
    assert_eq!(program_says(&installed), "tollgate 2.0.0\n");
    assert_eq!(files(&released.home("")), [installed], "nothing else was written");
    let elsewhere = released.world.tmp().join("elsewhere/bin");
    released.script(&["--to", elsewhere.to_str().unwrap()]).ends().is(0);
    assert_eq!(program_says(&elsewhere.join("tollgate")), "tollgate 2.0.0\n");
}

#[test]
fn a_program_with_another_checksum_is_not_installed() {
    let released = Released::new("1.0.0");
    let archive = released.folder("latest/download").join(format!("tollgate-{TARGET}.tar.gz"));
    let mut bytes = fs::read(&archive).unwrap();
    bytes.push(b'x');
    fs::write(&archive, bytes).unwrap();
    nothing_was_installed(&released, released.script(&[]).ends(), "the checksum of");
    fs::write(released.folder("latest/download/SHA256SUMS"), "").unwrap();
    nothing_was_installed(&released, released.script(&[]).ends(), "does not list");
    fs::remove_file(released.folder("latest/download/SHA256SUMS")).unwrap();
    nothing_was_installed(&released, released.script(&[]).ends(), "cannot download");
    nothing_was_installed(&released, released.script(&["--version", "9.9.9"]).ends(), "cannot download");
}

#[test]
fn a_link_in_the_archive_is_not_followed() {
    let released = Released::new("1.0.0");
    let archive = released.folder("latest/download").join(format!("tollgate-{TARGET}.tar.gz"));
    released.world.puts("private", "s3cret");
    let packed = |make: &dyn Fn(&Path)| {
        let folder = released.world.tmp().join("packed");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        make(&folder);
        let mut pack = Command::new("tar");
        pack.arg("-czf").arg(&archive).arg("-C").arg(&folder).args(["other", "tollgate"]);
        assert!(pack.status().unwrap().success());
        let sum = hash(fs::read(&archive).unwrap());
        let sums = format!("{sum}  tollgate-{TARGET}.tar.gz\n");
        fs::write(released.folder("latest/download/SHA256SUMS"), sums).unwrap();
        released.script(&[]).ends()
    };
    let symbolic = packed(&|folder| {
        fs::write(folder.join("other"), "x").unwrap();
        symlink(released.world.path("private"), folder.join("tollgate")).unwrap();
    });
    nothing_was_installed(&released, symbolic, "as a regular file");
    let hard = packed(&|folder| {
        fs::write(folder.join("other"), "x").unwrap();
        fs::hard_link(folder.join("other"), folder.join("tollgate")).unwrap();
    });
    nothing_was_installed(&released, hard, "as a regular file");
    let is_folder = packed(&|folder| {
        fs::write(folder.join("other"), "x").unwrap();
        fs::create_dir(folder.join("tollgate")).unwrap();
    });
    nothing_was_installed(&released, is_folder, "as a regular file");
}

#[test]
fn a_release_comes_over_https_only_also_after_a_redirect() {
    let released = Released::new("1.0.0");
    for address in ["http://127.0.0.1:9/releases", "ftp://127.0.0.1/releases", "127.0.0.1/releases"] {
        let ran = released.script(&[]).env("TOLLGATE_RELEASES", address).ends();
        nothing_was_installed(&released, ran, "does not begin with https://");
    }
    // A `curl` that only notes how it was called.
    let noted = released.world.path("noted");
    let tools = released.world.tmp().join("tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("curl"), format!("#!/bin/sh\necho \"$@\" >>'{}'\nexit 22\n", noted.display()))
        .unwrap();
    fs::set_permissions(tools.join("curl"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", tools.display());
    let with = |address: &str, wanted: &str| {
        let mut run = released.script(&[]).env("TOLLGATE_RELEASES", address);
        run.command.env("PATH", &path);
        nothing_was_installed(&released, run.ends(), "cannot download");
        let call = fs::read_to_string(&noted).unwrap();
        fs::remove_file(&noted).unwrap();
        assert!(call.contains(wanted), "{call}");
    };
    with("https://example.org/releases", "--max-redirs 5 --retry 3 --proto =https --proto-redir =https ");
    with("file:///releases", "--proto =file --proto-redir =file ");
}

#[test]
fn a_missing_tool_is_named() {
    let released = Released::new("1.0.0");
    let tools = ["sh", "awk", "cut", "mktemp", "rm", "mkdir", "cp", "chmod", "mv", "cat", "uname", "gzip"];
    let with = |more: &[&str]| {
        let folder = released.world.tmp().join("tools");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        for name in tools.iter().chain(more) {
            let real = ["/usr/bin", "/bin"]
                .map(|bin| Path::new(bin).join(name))
                .into_iter()
                .find(|path| path.exists());
            symlink(real.unwrap(), folder.join(name)).unwrap();
        }
        // `env` is found in the usual way; the script sees only these tools.
        let mut run = released.script(&[]);
        run.command.env("PATH", &folder);
        run.ends()
    };
    nothing_was_installed(&released, with(&["sha256sum", "tar"]), "curl is not installed");
    nothing_was_installed(&released, with(&["curl", "tar"]), "neither sha256sum nor shasum");
    nothing_was_installed(&released, with(&["curl", "sha256sum"]), "tar is not installed");
    with(&["curl", "sha256sum", "tar"]).is(0);
}

#[test]
fn a_user_who_is_not_root_can_install_it() {
    let released = Released::new("1.0.0");
    // Others may look into the folders of this test, and `nobody` owns the home.
    for folder in [released.world.tmp().to_owned(), released.world.root()] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = released.world.path("install.sh");
    fs::copy(root().join("install.sh"), &script).unwrap();
    let is_root = fs::metadata(&script).is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0);
    let mut words = Vec::new();
    if is_root {
        chown(released.home(""), Some(65534), Some(65534)).unwrap();
        words.extend(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    words.extend(["sh", script.to_str().unwrap(), "--target", TARGET]);
    let releases = format!("file://{}", released.world.path("releases").display());
    released.world.program("/usr/bin/env", words).env("TOLLGATE_RELEASES", releases).ends().is(0);
    assert_eq!(program_says(&released.home(".local/bin/tollgate")), "tollgate 1.0.0\n");
}

#[test]
fn a_script_that_was_cut_off_does_nothing() {
    let released = Released::new("1.0.0");
    let text = fs::read_to_string(root().join("install.sh")).unwrap();
    for end in (0..text.len() - "main \"$@\"\n".len()).step_by(97).filter(|end| text.is_char_boundary(*end)) {
        released.world.puts("cut.sh", &text[..end]);
        let releases = format!("file://{}", released.world.path("releases").display());
        released.world.program("sh", ["cut.sh"]).env("TOLLGATE_RELEASES", releases).ends();
        assert_eq!(files(&released.home("")), Vec::<PathBuf>::new(), "{end}");
    }
}

#[test]
fn a_copy_that_is_not_from_a_release_says_so() {
    let released = Released::new("1.0.0");
    let ran = released.script(&[]).without("TOLLGATE_RELEASES").ends();
    nothing_was_installed(&released, ran, "not from a release");
    let help = released.script(&["--help"]).ends().is(0).stdout();
    assert!(help.contains("--version VERSION") && help.contains("without root"), "{help}");
    released.script(&["--nonsense"]).ends().is(2);
}
