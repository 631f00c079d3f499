//! The trait of an agent program. Each program has one file in this folder that implements it.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tollgate::settings::{RunSettings, ShellCommands};

use super::event::{Call, HookCall, ToolReport};
use super::mcp::Registry;
use super::setup::{Setup, Trust};

/// An agent program.
pub(crate) trait Host: Sync {
    /// The name on the command line, in agents' names and in messages.
    fn name(&self) -> &'static str;

    /// Whether only this program sends a payload with these fields. Programs read each other's configuration, so a hook
    /// that is called in the name of one program may have to answer another.
    fn is_surely(&self, payload: &Value) -> bool;

    /// The event in a payload, or what is wrong with the payload.
    fn hear(&self, payload: &Value) -> Result<HookCall, String>;

    /// Whether a text that is not valid JSON may be the event before a tool, judging by the words in it.
    fn may_be_before_a_tool(&self, text: &str) -> bool;

    /// The answer that blocks a call and gives the agent the reason. The call is `None` if it could not be read.
    fn block(&self, reason: &str, call: Option<&Call>) -> Value;

    /// The answer that lets a call run with another input, if the program can change it. It must not suppress a question of
    /// the program to the user.
    fn change_input(&self, input: Value) -> Option<Value> {
        let _ = input;
        None
    }

    /// Whether `init` lets its shell commands run through `tollgate run`: tried with the program itself, in its usual sandbox and
    /// with its own rules for commands, which must see through the prologue.
    fn runs_commands(&self) -> bool {
        false
    }

    /// What its hooks do with shell commands under these settings.
    fn shell_commands(&self, settings: &RunSettings) -> ShellCommands {
        match settings.runs(self.name()) && self.change_input(Value::Null).is_some() {
            true => ShellCommands::Transaction,
            false => ShellCommands::Parse,
        }
    }

    /// How all its commands can run through tollgate although its rules judge them as they are.
    fn shell_prefix(&self) -> Option<ShellPrefix> {
        None
    }

    /// The answer after a tool that gives the agent a message; `None` if the program does not support that.
    fn tell(&self, words: &str, report: &ToolReport) -> Option<Value>;

    /// Whether the program supports that.
    fn can_tell(&self) -> bool {
        self.tell("", &ToolReport::default()).is_some()
    }

    /// The answer to a prompt of a person that gives the agent a message beside it; `None` if the program does not support that.
    fn tell_at_prompt(&self, words: &str) -> Option<Value> {
        let _ = words;
        None
    }

    /// The answer at the start of a session that gives the agent a message; `None` if `init` installs no hook for that, or the
    /// program has none.
    fn greet(&self, words: &str) -> Option<Value> {
        let _ = words;
        None
    }

    /// The hooks in its configuration.
    fn setup(&self) -> Setup;

    /// The files that enable or disable its hooks and MCP servers, or that load code into it, as ends of paths: in every project
    /// and in the user's home. The last part may be `*`. Agents may not change them, because they could disable the guard.
    fn switches(&self) -> &'static [&'static str];

    /// The user's own files among the switches, absolute, without those that the program writes in its everyday work: commands of a
    /// run cannot change them, nor can a program that runs as a whole inside of one.
    fn own_settings(&self, home: Option<&Path>) -> Vec<PathBuf> {
        let _ = home;
        Vec::new()
    }

    /// The MCP servers in its configuration.
    fn mcp(&self) -> Registry;

    /// The files and folders that show that the program is used.
    fn traces(&self) -> Traces;

    /// The environment variables by which a command knows that an agent of this program runs it.
    fn shell_marks(&self) -> &'static [&'static str];

    /// The other programs whose hooks this program calls, too.
    fn also_calls(&self) -> &'static [&'static str] {
        &[]
    }

    /// By which setting its hooks are disabled, or made to do something else.
    fn hooks_off(&self, home: Option<&Path>, root: &Path) -> Option<String> {
        let _ = (home, root);
        None
    }

    /// By which setting, outside of its own entry, our MCP server is disabled.
    fn server_off(&self, home: Option<&Path>, root: &Path) -> Option<String> {
        let _ = (home, root);
        None
    }

    /// Whether the program would call the installed hooks, judging by its settings.
    fn trust(&self, home: Option<&Path>, root: &Path) -> Trust {
        self.hooks_off(home, root).map_or(Trust::NotNeeded, Trust::SwitchedOff)
    }

    /// A payload about this file and session, for testing the installed hooks.
    fn canary(&self, session: &str, folder: &Path, event: Canary, file: &Path) -> Value;
}

/// A place for [`crate::prefixed`] in a program: the value of an environment variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShellPrefix {
    /// What the program puts in front of every command.
    Words(&'static str),
    /// A file that each of its shells reads first.
    StartFile(&'static str),
}

/// The event of a canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Canary {
    /// The file is about to be read.
    BeforeRead,
    /// The file was read.
    AfterRead,
    /// The file is about to be overwritten.
    BeforeWrite,
    /// A shell command is about to print it.
    BeforeCommand,
}

/// The names that show that a program is used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traces {
    /// Its executable.
    pub(crate) program: &'static str,
    /// A folder below the user's home.
    pub(crate) home: &'static str,
    /// Files or folders in a project.
    pub(crate) project: &'static [&'static str],
}
