//! Whether a change of git's configuration plants a command: a value that git would execute, or a place from which it would
//! take more configuration or hooks.
//!
//! Agents run git, so its configuration changes all the time: remotes, branches, names. Only new values of the keys in
//! `COMMANDS` are refused. What git cannot read, nobody can judge; such a file counts as one that plants something.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The size in bytes of the largest configuration that is read. git writes a few hundred bytes for each branch.
const LARGEST: u64 = 4 << 20;

/// The keys whose values git executes, or that name more configuration, hooks or programs; from git's own list
/// (`git help config`). `*` stands for any text. The first lines are rules, so that keys of later versions fit, too.
const COMMANDS: &[&str] = &[
    "*cmd",
    "*command",
    "*program",
    "*prog",
    "*helper",
    "*hook",
    "*editor",
    "*.driver",
    "*.textconv",
    "*.clean",
    "*.smudge",
    "*.process",
    "*.uploadpack",
    "*.receivepack",
    "*.vcs",
    "alias.*",
    "browser.*.path",
    "core.askpass",
    "core.fsmonitor",
    "core.gitproxy",
    "core.hookspath",
    "core.pager",
    "diff.external",
    "difftool.*.path",
    "imap.tunnel",
    "include.path",
    "includeif.*.path",
    "init.templatedir",
    "instaweb.browser",
    "instaweb.httpd",
    "interactive.difffilter",
    "lfs.*.path",
    "man.*.path",
    "mergetool.*.path",
    "pager.*",
    "protocol.*allow",
    "sendemail.*smtpserver",
    "submodule.*.update",
];

/// The keys of [`COMMANDS`] whose values are only sometimes commands, and when.
fn is_harmless(key: &str, value: Option<&str>) -> bool {
    let Some(value) = value else {
        // A key without a value is the same as `true`.
        return key == "core.fsmonitor" || key.starts_with("pager.");
    };
    let is_switch = ["true", "false", "yes", "no", "on", "off", "0", "1", ""]
        .contains(&value.to_ascii_lowercase().as_str());
    match key.split('.').next() {
        Some("alias") => is_plain_alias(value),
        Some("submodule") => !value.trim_start().starts_with('!'),
        Some("core") if key == "core.fsmonitor" => is_switch,
        Some("pager") => is_switch,
        Some("protocol") => value == "never" || value == "user",
        Some("sendemail") if key.ends_with("smtpserver") => !value.starts_with(['/', '~']),
        _ => false,
    }
}

/// The name of a command of git, perhaps with long options that have no values. Options of some commands execute their values:
/// `rebase --exec`, `grep -O`.
fn is_plain_alias(value: &str) -> bool {
    let is_name = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let mut words = value.split_whitespace();
    words.next().is_some_and(|word| is_name(word) && !word.starts_with('-'))
        && words.all(|word| word.starts_with("--") && is_name(word))
}

/// Whether git would execute the value of this key, or take more configuration from there. `None`: a value that is not known.
pub fn names_command(key: &str, value: Option<&str>) -> bool {
    let key = match (key.split_once('.'), key.rsplit_once('.')) {
        // Only the text between the section and the name has an upper and a lower case.
        (Some((section, _)), Some((_, name))) if section.len() + name.len() + 1 < key.len() => {
            let middle = &key[section.len()..key.len() - name.len()];
            format!("{}{middle}{}", section.to_lowercase(), name.to_lowercase())
        }
        _ => key.to_lowercase(),
    };
    COMMANDS.iter().any(|pattern| fits(pattern, &key))
        && !value.is_some_and(|value| is_harmless(&key, Some(value)))
}

/// Whether a key has the form of a pattern. `*` stands for any text.
fn fits(pattern: &str, key: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == key,
        Some((start, rest)) => key.strip_prefix(start).is_some_and(|key| match rest {
            "" => true,
            rest => (0..=key.len()).any(|at| key.is_char_boundary(at) && fits(rest, &key[at..])),
        }),
    }
}

/// The files in which git keeps the user's own configuration, and where links lead that are there now.
pub fn of_user(home: Option<&Path>, config: Option<&Path>, named: Option<PathBuf>) -> Vec<PathBuf> {
    let own = home.map(|home| home.join(".gitconfig"));
    let shared =
        config.into_iter().flat_map(|config| ["git/config", "git/attributes"].map(|name| config.join(name)));
    // People write `GIT_CONFIG_GLOBAL=/dev/null`.
    let is_special = |path: &PathBuf| path.metadata().is_ok_and(|found| !found.is_file());
    let named = named.filter(|named| named.is_absolute());
    let mut files: Vec<PathBuf> = own.into_iter().chain(shared).chain(named).collect();
    let behind_links: Vec<PathBuf> = files.iter().filter_map(|file| file.canonicalize().ok()).collect();
    files.extend(behind_links);
    files.retain(|file| !is_special(file));
    files
}

/// Whether this file, which did not exist before, names a command as a configuration of the user.
pub fn brings_command(file: &Path) -> bool {
    let is_configuration =
        !file.ends_with("attributes") && file.metadata().is_ok_and(|found| found.is_file());
    is_configuration && fs::read(file).is_ok_and(|new| plants_command(b"", &new))
}

/// Whether the file `from`, when it comes to the path `to`, plants a command in git's configuration, or another configuration. `None`: nobody knows what
/// will be in the file.
pub(crate) fn comes_with_command(from: Option<&Path>, to: &Path) -> bool {
    let read = |path: &Path| match fs::metadata(path) {
        Ok(found) if found.len() > LARGEST => None,
        _ => fs::read(path).ok(),
    };
    if is_in_git(to, &["commondir"], from) {
        // git takes configuration and hooks from the folder that it names. Only `git worktree add` writes it, once.
        let new = from.and_then(read);
        let is_of_worktree = to.ancestors().nth(2).is_some_and(|folder| folder.ends_with("worktrees"));
        let is_ours = new.as_ref().is_none_or(|new| new.trim_ascii() == b"../..");
        let is_new = is_of_worktree && to.symlink_metadata().is_err() && is_ours;
        return !is_new && (new.is_none() || new != read(to));
    }
    if !is_in_git(to, &["config", "config.worktree"], from) {
        return false;
    }
    match from.and_then(read) {
        Some(new) => plants_command(&read(to).unwrap_or_default(), &new),
        None => true,
    }
}

/// Whether a file of this path, which may come from another one, is git's own and has one of these names: it is below a folder
/// `.git` or beside a file `HEAD`.
fn is_in_git(path: &Path, names: &[&str], from: Option<&Path>) -> bool {
    let is = |part: &OsStr, name: &str| part.eq_ignore_ascii_case(name);
    let is_named = path.file_name().is_some_and(|part| names.iter().any(|name| is(part, name)));
    let in_git = || path.iter().any(|part| is(part, ".git"));
    let has_head = |file: &Path| file.with_file_name("HEAD").exists();
    is_named && (in_git() || has_head(path) || from.is_some_and(has_head))
}

/// Whether the new bytes have a command that the old ones do not have.
fn plants_command(old: &[u8], new: &[u8]) -> bool {
    if old == new {
        return false;
    }
    let Some(new) = entries(new) else { return true };
    let old = entries(old).unwrap_or_default();
    let names = |(key, value): &ConfigEntry| match value {
        Some(value) => names_command(key, Some(value)),
        None => names_command(key, None) && !is_harmless(key, None),
    };
    new.iter().filter(|entry| names(entry)).any(|entry| !old.contains(entry))
}

/// A key and its value, with one character for each byte. Sections and names are in lower case.
type ConfigEntry = (String, Option<String>);

/// All keys with their values, in git's own grammar; `None` if git could not read the file.
fn entries(bytes: &[u8]) -> Option<Vec<ConfigEntry>> {
    let text = bytes.iter().map(|byte| char::from(*byte)).collect::<String>().replace("\r\n", "\n");
    let mut rest = text.strip_prefix("\u{ef}\u{bb}\u{bf}").unwrap_or(&text);
    let (mut section, mut entries) = (None, Vec::new());
    loop {
        rest = rest.trim_start_matches(is_space);
        let Some(first) = rest.chars().next() else { return Some(entries) };
        match first {
            '#' | ';' => rest = rest.split_once('\n').map_or("", |(_, rest)| rest),
            '[' => {
                let (name, after) = self::section(&rest[1..])?;
                (section, rest) = (Some(name), after);
            }
            letter if letter.is_ascii_alphabetic() => {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
                let key = format!("{}.{}", section.as_ref()?, rest[..end].to_lowercase());
                rest = rest[end..].trim_start_matches([' ', '\t']);
                let value = match rest.strip_prefix('=') {
                    Some(after) => {
                        let (value, after) = value(after)?;
                        rest = after;
                        Some(value)
                    }
                    None if rest.is_empty() || rest.starts_with('\n') => None,
                    None => return None,
                };
                entries.push((key, value));
            }
            _ => return None,
        }
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// The name of a section after its bracket, and what follows.
fn section(text: &str) -> Option<(String, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.')?;
    let (name, rest) = (text[..end].to_lowercase(), &text[end..]);
    if let Some(rest) = rest.strip_prefix(']') {
        return Some((name, rest));
    }
    let quoted =
        rest.trim_start_matches([' ', '\t']).strip_prefix('"').filter(|_| rest.starts_with([' ', '\t']))?;
    let mut middle = String::new();
    let mut chars = quoted.char_indices();
    loop {
        match chars.next()? {
            (_, '\n') => return None,
            (_, '\\') => middle.push(chars.next().map(|(_, c)| c).filter(|c| *c != '\n')?),
            (at, '"') => return Some((format!("{name}.{middle}"), quoted[at + 1..].strip_prefix(']')?)),
            (_, c) => middle.push(c),
        }
    }
}

/// A value after its `=`, and what follows its line.
fn value(text: &str) -> Option<(String, &str)> {
    let (mut value, mut spaces, mut quoted) = (String::new(), String::new(), false);
    let mut chars = text.char_indices();
    loop {
        let Some((at, c)) = chars.next() else { return (!quoted).then_some((value, "")) };
        match c {
            '\n' => return (!quoted).then(|| (value, &text[at + 1..])),
            '#' | ';' if !quoted => {
                return Some((value, text[at..].split_once('\n').map_or("", |(_, rest)| rest)));
            }
            // White space at both ends does not count.
            c if is_space(c) && !quoted => {
                if !value.is_empty() {
                    spaces.push(c);
                }
                continue;
            }
            _ => value.push_str(&std::mem::take(&mut spaces)),
        }
        match c {
            '"' => quoted = !quoted,
            '\\' => match chars.next()?.1 {
                '\n' => {}
                't' => value.push('\t'),
                'b' => value.push('\u{8}'),
                'n' => value.push('\n'),
                c @ ('\\' | '"') => value.push(c),
                _ => return None,
            },
            c => value.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_name_commands() {
        for (key, value, names) in [
            ("core.fsmonitor", "./x", true),
            ("core.fsmonitor", "true", false),
            ("core.hooksPath", ".husky", true),
            ("core.sshCommand", "x", true),
            ("core.pager", "x", true),
            ("core.editor", "x", true),
            ("core.askPass", "x", true),
            ("core.alternateRefsCommand", "x", true),
            ("core.autocrlf", "true", false),
            ("core.worktree", "../x", false),
            ("include.path", "x", true),
            ("includeIf.gitdir:/w/.path", "x", true),
            ("filter.x.clean", "x", true),
            ("filter.X.Process", "x", true),
            ("filter.x.required", "true", false),
            ("alias.x", "!x", true),
            ("alias.co", "checkout", false),
            ("alias.lg", "log --oneline --graph", false),
            ("alias.st", "grep -Oevil .", true),
            ("alias.st", "rebase --exec evil", true),
            ("alias.st", "fetch --upload-pack=evil", true),
            ("credential.helper", "store", true),
            ("credential.https://host.helper", "x", true),
            ("credential.username", "x", false),
            ("gpg.program", "x", true),
            ("gpg.ssh.program", "x", true),
            ("gpg.ssh.defaultKeyCommand", "x", true),
            ("diff.external", "x", true),
            ("diff.x.textconv", "x", true),
            ("diff.x.command", "x", true),
            ("difftool.x.cmd", "x", true),
            ("merge.x.driver", "x", true),
            ("merge.conflictStyle", "diff3", false),
            ("pager.log", "x", true),
            ("pager.log", "false", false),
            ("sequence.editor", "x", true),
            ("remote.origin.uploadpack", "x", true),
            ("remote.origin.vcs", "x", true),
            ("remote.origin.url", "ssh://x", false),
            ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*", false),
            ("branch.main.remote", "origin", false),
            ("branch.x.command.merge", "refs/heads/main", false),
            ("protocol.ext.allow", "always", true),
            ("protocol.allow", "never", false),
            ("submodule.x.update", "!x", true),
            ("submodule.x.update", "rebase", false),
            ("hook.x.command", "x", true),
            ("gc.recentObjectsHook", "x", true),
            ("uploadpack.packObjectsHook", "x", true),
            ("init.templateDir", "x", true),
            ("init.defaultBranch", "main", false),
            ("trailer.x.cmd", "x", true),
            ("sendemail.x.sendmailCmd", "x", true),
            ("sendemail.smtpserver", "mail.example.com", false),
            ("user.name", "x", false),
            ("push.default", "current", false),
            ("lfs.customtransfer.x.path", "x", true),
        ] {
            assert_eq!(names_command(key, Some(value)), names, "{key} {value}");
        }
        assert!(names_command("alias.x", None), "a value that is not known");
    }

    #[test]
    fn only_new_commands_count() {
        let old = "[core]\n\tbare = false\n\teditor = vim\n[alias]\n\tst = status\n";
        for (new, plants) in [
            ("[core]\n\tbare = false\n\teditor = vim\n[user]\n\tname = a\n", false),
            ("[core]\neditor = vim\n[remote \"o\"]\n\turl = x\n\tfetch = y\n", false),
            ("[core]\n\teditor = evil\n", true),
            ("[core]\n\tEDITOR = evil\n", true),
            ("[core] editor = vim # mine\n", false),
            ("[core]editor=\"v\"im\n", false),
            ("[core]\n\teditor = vim\n\teditor = evil\n", true),
            ("[alias]\n\tst = !evil\n", true),
            ("[alias]\n\tst = \"!evil\"\n", true),
            ("[alias]\n\tst = \\\n  !evil\n", true),
            ("[alias]\r\n\tst = status\r\n", false),
            ("[filter \"x\\\"]\"] clean = evil", true),
            ("[filter.x]\nclean = evil\n", true),
            ("[core]\nfsmonitor\n", false),
            ("[core]\npager\n", true),
            ("; [core]\n# hooksPath = x\n[a]\nb = c ; hooksPath\n", false),
            ("\u{feff}[include]\npath = x\n", true),
            // What git does not read.
            ("[core\n", true),
            ("editor = vim\n", true),
            ("[core]\n\tx = \"a\n", true),
            ("[core]\n\tx = \\q\n", true),
            ("[core]\n\tx y\n", true),
        ] {
            assert_eq!(plants_command(old.as_bytes(), new.as_bytes()), plants, "{new}");
        }
        assert!(!plants_command(b"[core", b"[core"), "nothing was changed");
        assert!(plants_command(b"[core", b"[core]\nhooksPath = x\n"));
        assert!(!plants_command(b"", b"[user]\nname = \xff\n"), "git reads any bytes");
        assert!(plants_command(b"[core]\neditor = \xfe\n", b"[core]\neditor = \xff\n"));
    }

    /// git's own answer, for files of many forms.
    #[test]
    fn git_reads_the_same_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        for text in [
            "[a]\nb = c\n",
            "[A \"B c\"] D=e\n[f]g\n",
            "[a.B]\nc = \"d # e\" f ; g\n",
            "[a]\nb =   c  d  \nc=\\\"x\\\\ \\\n  y\n",
            "[a]\nb = \"\\t x\\n\" \n",
            "[a \"x\\\"y\\\\z\"]\nb\n",
            "[a]\r\nb = c\r\n",
            "[a]b = c",
            "[a] ; x\nb = # nothing\n",
        ] {
            fs::write(&path, text).unwrap();
            let listed = std::process::Command::new("git")
                .args(["config", "--no-includes", "--list", "-z", "--file"])
                .arg(&path)
                .output()
                .unwrap();
            assert!(listed.status.success(), "{text}");
            let listed = String::from_utf8(listed.stdout).unwrap();
            let listed: Vec<ConfigEntry> = listed
                .split_terminator('\0')
                .map(|entry| match entry.split_once('\n') {
                    Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                    None => (entry.to_owned(), None),
                })
                .collect();
            assert_eq!(entries(text.as_bytes()).unwrap(), listed, "{text}");
        }
    }

    /// Whatever is in the file, reading it ends, and what git refuses is refused here.
    #[test]
    fn mutated_files_are_read_to_the_end() {
        let example =
            "[core]\n\teditor = \"v\\\"im\" ; x\n[filter \"a b\"]\n\tclean = x \\\n y\n[a.b] c\n# z\n";
        tollgate_fuzz::fuzz("git configuration", &[example], |bytes| {
            let _ = entries(bytes);
            let _ = plants_command(example.as_bytes(), bytes);
        });
    }
}
