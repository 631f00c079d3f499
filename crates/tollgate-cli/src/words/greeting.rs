//! What an agent learns before it works: its files are guarded, there may be tasks, and some commands help.

use tollgate::name::Agent;

/// What an agent learns at the start of its session.
pub(crate) fn hook_greeting(agent: &Agent, has_tasks: bool, is_shell_guarded: bool) -> String {
    informing(Some(agent), if has_tasks { HAS_TASKS } else { MAY_HAVE_TASKS }, is_shell_guarded)
}

/// What an agent should know, for a file that the agents of a program read at the start.
pub(crate) fn agent_instructions(is_shell_guarded: bool) -> String {
    informing(None, MAY_HAVE_TASKS, is_shell_guarded)
}

const HAS_TASKS: &str = "This folder has tasks:";

const MAY_HAVE_TASKS: &str = "If `tollgate task list` shows tasks,";

/// Four lines: the files, the tasks, commits, the commands. One more about shell commands, if only their text is judged.
fn informing(agent: Option<&Agent>, tasks: &str, is_shell_guarded: bool) -> String {
    let name = agent.map_or("NAME", Agent::as_str);
    let shell = match is_shell_guarded {
        true => String::new(),
        false => format!(
            "Of a shell command only the text is judged: what a script, an interpreter or a build does to files is not. So start \
             those that change files with `tollgate run --agent {name} -- COMMAND`, which makes all their changes or none.\n"
        ),
    };
    format!(
        "tollgate guards the files in this folder: other agents and people work here too, and a write is refused if the file was \
         changed after you read it. Then read it again, redo your change and write, or run the `tollgate merge` command that the \
         refusal offers.\n\
         {shell}{tasks} claim one before you work on it (`tollgate task claim --next --agent {name}`) and release it when you are done \
         (`tollgate task release TASK --claim-id ID`).\n\
         To commit, use `tollgate commit -m MESSAGE --agent {name}`: it takes your own changes and nobody else's.\n\
         `tollgate status` shows who works here, `tollgate ledger tail` what happened; `tollgate --help` lists all commands."
    )
}
