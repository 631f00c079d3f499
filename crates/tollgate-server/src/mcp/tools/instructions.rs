//! What the server tells every model about the tools.

/// What the server tells every model about itself.
pub(in crate::mcp) const INSTRUCTIONS: &str = "\
Other agents and people share these files. Every write is checked against what you last read.

- Read a file before you change it.
- If a write is refused with STALE_FILE, somebody changed the file after you read it, and nothing was written. Read the file \
again with read_text_file (the whole file, if you are going to replace the whole file), redo your change on the new content, \
then write. Or call merge_file with `write`, which does this in one call if the two changes do not overlap. Do not repeat the same write, and do not delete the file to get around the refusal: you would destroy somebody's work.
- FILE_BUSY: wait a moment, then try again.
- TEXT_NOT_FOUND: read the file again and copy the old text exactly.
- FENCED: your claim on a task has ended, and another agent may have it. Stop working on that task, call release_task for it, and \
only then go on with other work.
- To change several files that belong together, use write_files: all of them change, or none.
- To commit, use commit_changes: it takes your own changes and nobody else's.
- Call begin_turn when you start on a new request. If several agents share this connection, each calls begin_turn and \
passes its own turn_id to every tool.
- Work on a task only after you have claimed it with claim_task, and call release_task when you finish or give up. If a task tool \
answers that you are not the owner, stop working on that task. Only people approve tasks.";
