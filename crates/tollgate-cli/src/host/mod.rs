//! The agent programs that tollgate can guard: one file for each, and this list.
//!
//! The file of a program knows its JSON: its events, its answers, and its configuration. The name of a program occurs
//! nowhere else. A new program is one new file and one line in [`ALL`].

mod claude_code;
mod cline;
mod codex;
mod copilot;
mod cursor;
pub(crate) mod event;
mod fields;
mod gemini;
mod jsonc;
mod kilo;
mod mcp;
mod opencode;
pub(crate) mod patch;
mod program;
mod program_file;
mod qwen;
mod settings_files;
mod setup;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use event::HookEvent;
pub(crate) use mcp::Registered;
pub(crate) use program::{Canary, Host, ShellPrefix};
pub(crate) use setup::{PREFIXED, SetupChange, Trust};

/// All programs, in the order of the help. Kilo Code's commands also have the variables of opencode, so it comes first.
pub(crate) const ALL: [&dyn Host; 9] = [
    &claude_code::ClaudeCode,
    &codex::Codex,
    &gemini::Gemini,
    &kilo::Kilo,
    &opencode::Opencode,
    &cursor::CursorEditor,
    &copilot::Copilot,
    &cline::Cline,
    &qwen::Qwen,
];

/// The program of this name.
pub(crate) fn named(name: &str) -> Option<&'static dyn Host> {
    ALL.into_iter().find(|host| host.name() == name)
}

/// The names of all.
pub(crate) fn names() -> Vec<&'static str> {
    ALL.iter().map(|host| host.name()).collect()
}

/// The program that sent this payload: judged by its fields, otherwise the program in whose name the hook was called.
pub(crate) fn recognise(payload: &Value, called: &'static dyn Host) -> &'static dyn Host {
    let knows_event = |host: &&dyn Host| {
        let event = host.hear(payload).map(|heard| heard.event);
        event.is_ok_and(|event| !matches!(event, HookEvent::Unknown(_)))
    };
    let sure = ALL.into_iter().find(|host| host.is_surely(payload));
    let other = || called.hear(payload).is_err().then(|| ALL.into_iter().find(knows_event)).flatten();
    sure.or_else(other).unwrap_or(called)
}

/// The traces of a program, on this machine and in this workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundHost {
    /// Its executable is in `PATH`.
    pub(crate) on_path: bool,
    /// A file or folder of it in the workspace.
    pub(crate) in_project: Option<&'static str>,
    /// It has a folder in the user's home.
    pub(crate) in_home: bool,
}

impl FoundHost {
    /// Whether there are any.
    pub(crate) fn any(self) -> bool {
        self.on_path || self.in_project.is_some() || self.in_home
    }
}

/// Looks for the traces of a program.
pub(crate) fn find(host: &dyn Host, home: Option<&Path>, path: &[PathBuf], root: &Path) -> FoundHost {
    let traces = host.traces();
    FoundHost {
        on_path: path.iter().any(|folder| folder.join(traces.program).is_file()),
        in_project: traces.project.iter().find(|name| root.join(name).exists()).copied(),
        in_home: home.is_some_and(|home| home.join(traces.home).is_dir()),
    }
}

/// The program whose agent runs this process, judging by the variables that programs set for their agents' commands.
pub(crate) fn around(is_set: impl Fn(&str) -> bool) -> Option<&'static str> {
    ALL.into_iter().find(|host| host.shell_marks().iter().any(|mark| is_set(mark))).map(Host::name)
}

/// The files that enable or disable hooks and MCP servers, as ends of paths.
pub(crate) fn switches() -> Vec<PathBuf> {
    let all: BTreeSet<_> = ALL.iter().flat_map(|host| host.switches()).collect();
    all.into_iter().map(PathBuf::from).collect()
}

/// The user's own files among them that commands of a run cannot change.
pub(crate) fn own_settings(home: Option<&Path>) -> Vec<PathBuf> {
    // People link what they do not want to `/dev/null`.
    let is_special = |file: &PathBuf| file.metadata().is_ok_and(|found| !found.is_file());
    let files = ALL.iter().flat_map(|host| host.own_settings(home));
    files.filter(|file| file.is_absolute() && !is_special(file)).collect()
}

/// The user's own settings of all programs that do not exist yet.
pub(crate) struct MissingSettings {
    home: Option<PathBuf>,
    files: Vec<(&'static dyn Host, PathBuf)>,
}

impl MissingSettings {
    /// Those that do not exist now.
    pub(crate) fn find(home: Option<PathBuf>) -> Self {
        let own =
            |host: &'static dyn Host, home| host.own_settings(home).into_iter().map(move |file| (host, file));
        let files = ALL.into_iter().flat_map(|host| own(host, home.as_deref()));
        let files = files.filter(|(_, file)| file.is_absolute() && !file.exists()).collect();
        Self { home, files }
    }

    /// One that exists by now, and disables hooks or our server in all workspaces, as far as `doctor` can tell.
    pub(crate) fn disabling(&self) -> Option<&Path> {
        // A folder without settings of its own.
        let (home, nowhere) = (self.home.as_deref(), Path::new("/no/such/folder"));
        let (_, file) = self.files.iter().find(|(host, file)| {
            let named = format!("`{}`", file.display());
            let off = || [host.hooks_off(home, nowhere), host.server_off(home, nowhere)];
            file.exists() && off().into_iter().flatten().any(|why| why.contains(&named))
        })?;
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Payloads that programs have sent. Some of them have the same names for fields and events.
    const SENT: &[(&str, &str)] = &[
        ("claude-code", include_str!("../../tests/it/hook/recorded/claude-code.jsonl")),
        ("codex", include_str!("../../tests/it/hook/recorded/codex.jsonl")),
        ("gemini", include_str!("../../tests/it/hook/recorded/gemini.jsonl")),
        ("kilo", include_str!("../../tests/it/hook/recorded/kilo.jsonl")),
        ("opencode", include_str!("../../tests/it/hook/recorded/opencode.jsonl")),
        ("cursor", include_str!("../../tests/it/hook/recorded/cursor.jsonl")),
        ("copilot", include_str!("../../tests/it/hook/recorded/copilot.jsonl")),
        ("copilot", COPILOT_FOR_OTHERS),
        ("cline", include_str!("../../tests/it/hook/recorded/cline.jsonl")),
        ("qwen", include_str!("../../tests/it/hook/recorded/qwen.jsonl")),
        ("qwen", QWEN_FAILED),
    ];

    /// To the hooks of Claude Code, Copilot CLI sends Claude Code's names.
    const COPILOT_FOR_OTHERS: &str = r#"{"hook_event_name": "PreToolUse", "session_id": "s", "timestamp": "2026-11-15T00:00:07.581Z", "cwd": "/w", "tool_name": "Edit", "tool_input": {}}"#;

    /// What Qwen Code sends in place of `PostToolUse`.
    const QWEN_FAILED: &str = r#"{"hook_event_name": "PostToolUseFailure", "session_id": "s", "transcript_path": "/t", "timestamp": "2026-11-15T00:00:07.581Z", "permission_mode": "default", "cwd": "/w", "tool_use_id": "c", "tool_name": "edit", "tool_input": {}, "error": "no"}"#;

    #[test]
    fn no_payload_is_taken_for_that_of_another_program() {
        for (host, sent) in SENT {
            for line in sent.lines() {
                let payload: Value = serde_json::from_str(line).unwrap();
                let sure = ALL.iter().map(|host| (host.name(), host.is_surely(&payload)));
                let others: Vec<_> = sure.filter(|(name, sure)| *sure && name != host).collect();
                assert_eq!(others, [], "{host}: {line}");
                // Its own hook understands it in any case.
                assert_eq!(recognise(&payload, named(host).unwrap()).name(), *host, "{line}");
            }
        }
    }

    /// In the hook of another program, whose configuration they also read.
    #[test]
    fn a_tool_call_of_a_program_is_recognised_in_the_hook_of_any_other() {
        for (host, sent) in SENT {
            let payloads = sent.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let folder = Path::new("/w");
            let canary = named(host).unwrap().canary("s", folder, Canary::BeforeWrite, &folder.join("a"));
            let is_call = |payload: &Value| {
                named(host)
                    .unwrap()
                    .hear(payload)
                    .is_ok_and(|heard| matches!(heard.event, HookEvent::Before(_)))
            };
            for payload in payloads.filter(is_call).chain([canary]) {
                for called in ALL {
                    assert_eq!(recognise(&payload, called).name(), *host, "{}: {payload}", called.name());
                }
            }
        }
    }

    /// Other languages' packages read the list.
    #[test]
    fn the_list_of_switches_has_all_of_them() {
        let all: Vec<_> = switches().iter().map(|end| format!("{}\n", end.display())).collect();
        assert_eq!(include_str!("switches.txt"), all.concat());
    }

    #[test]
    fn every_file_that_init_writes_is_a_switch() {
        for host in ALL {
            let is_switch = |file: &Path| {
                host.switches().iter().map(Path::new).any(|end| {
                    let folders = file.parent().zip(end.parent());
                    file.ends_with(end)
                        || end.ends_with("*") && folders.is_some_and(|(folder, end)| folder.ends_with(end))
                })
            };
            let files = host.setup().files().into_iter().chain(host.mcp().file(Path::new("/no/such/folder")));
            for file in files.chain(host.own_settings(Some(Path::new("/no/such/home")))) {
                assert!(is_switch(&file), "{}: {}", host.name(), file.display());
            }
        }
    }
}
