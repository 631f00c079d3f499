//! The lines that show what each command does: its text, its JSON, and typical errors.
//!
//! `$TURN`, `$CLAIM` and `$ID` are the last turn, claim and recovery id that a line has printed. The help of each command is
//! shown without a line for it.

use super::Script;

pub(super) const FILES: &[Script] = &[
    (
        "turn",
        "tollgate turn nonsense
tollgate turn nonsense --json",
    ),
    (
        "turn begin",
        "tollgate turn begin --agent blue
tollgate turn begin --agent blue --json
tollgate turn begin --agent 'two words'
tollgate turn begin --agent blue --json -C missing",
    ),
    (
        "turn end",
        "tollgate turn begin --agent blue
tollgate turn end --turn $TURN
tollgate turn end --turn $TURN
tollgate turn begin --agent blue
tollgate turn end --turn $TURN --json
tollgate turn end
tollgate turn end --json",
    ),
    (
        "turn show",
        "tollgate turn begin --agent blue
tollgate turn show --turn $TURN
tollgate read a.md --turn $TURN
tollgate turn show --turn $TURN
tollgate turn show --turn $TURN --json
tollgate turn show --turn t-0000000000000000
tollgate turn show --json",
    ),
    (
        "turn list",
        "tollgate turn list
tollgate turn begin --agent blue
tollgate turn list
tollgate turn list --json
tollgate turn list blue",
    ),
    (
        "turn hash",
        "tollgate turn begin --agent blue
tollgate turn hash a.md --turn $TURN
tollgate read a.md --turn $TURN
tollgate turn hash a.md --turn $TURN
tollgate turn hash a.md --turn $TURN --json
tollgate turn hash a.md",
    ),
    (
        "read",
        "tollgate read a.md
tollgate read a.md --lines 2:3
tollgate read a.md --json
tollgate read missing.md
tollgate read missing.md --json
tollgate read a.md --lines 3:2
tollgate read vault",
    ),
    (
        "write",
        "tollgate turn begin --agent blue
tollgate read a.md --turn $TURN
echo four | tollgate write a.md --turn $TURN
echo five | tollgate write a.md --turn $TURN --json
echo foreign > a.md
echo six | tollgate write a.md --turn $TURN
echo six | tollgate write a.md --turn $TURN --json
? tollgate write a.md --turn $TURN < vault/Needs_Action/paint.md
echo six | tollgate write .tollgate/config.toml
echo six | tollgate write a.md --expect nonsense",
    ),
    (
        "edit",
        "tollgate edit a.md --old two --new TWO
tollgate edit a.md --old three --new THREE --json
tollgate edit a.md --old four --new FOUR
tollgate edit a.md --old four --new FOUR --json
tollgate edit a.md --old E --new e
tollgate edit a.md --old E",
    ),
    (
        "create",
        "echo new | tollgate create b.md
echo new | tollgate create docs/c.md --json
echo new | tollgate create b.md
echo new | tollgate create b.md --json
echo new | tollgate create ../b.md",
    ),
    (
        "delete",
        "tollgate turn begin --agent blue
tollgate read a.md --turn $TURN
echo foreign > a.md
tollgate delete a.md --turn $TURN
tollgate delete a.md --turn $TURN --json
tollgate delete a.md
tollgate delete a.md
echo again > a.md
tollgate delete a.md --json",
    ),
    (
        "move",
        "tollgate move a.md docs/b.md
tollgate move docs/b.md c.md --json
echo other > d.md
tollgate move c.md d.md
tollgate move c.md d.md --json
tollgate move missing.md e.md",
    ),
    (
        "apply",
        r#"echo '[{"path":"a.md","edits":[{"oldText":"two","newText":"TWO"}]},{"path":"b.md","content":"new\n"}]' | tollgate apply
echo '[{"path":"a.md","content":"short\n"},{"path":"b.md","delete":true}]' | tollgate apply --json
echo '[{"path":"a.md","content":"x"},{"path":"b.md","edits":[{"oldText":"y","newText":"z"}]}]' | tollgate apply
echo '[{"path":"a.md","content":"x","expected_hash":"absent"}]' | tollgate apply --json
echo nonsense | tollgate apply
echo nonsense | tollgate apply --json"#,
    ),
    (
        "merge",
        "tollgate merge a.md
tollgate turn begin --agent blue
tollgate read a.md --turn $TURN
sed -i s/three/THREE/ a.md
printf 'ONE\\ntwo\\nthree\\n' | tollgate write a.md --turn $TURN
tollgate merge a.md
tollgate merge a.md --json
tollgate merge a.md --write --turn $TURN
tollgate merge a.md --json",
    ),
    (
        "commit",
        "git init -q -b main; git config user.name Ada; git config user.email ada@example.org
export GIT_AUTHOR_DATE=2026-11-18T12:00:00Z GIT_COMMITTER_DATE=2026-11-18T12:00:00Z
git add a.md; git commit -q -m first
tollgate commit -m mine --agent blue
printf 'ONE\\ntwo\\nthree\\n' | tollgate write a.md --agent red
printf 'ONE\\ntwo\\nTHREE\\n' | tollgate write a.md --agent blue
printf 'ONE!\\n' | tollgate create b.md --agent blue
tollgate commit --agent blue
tollgate commit --dry-run --agent blue
tollgate commit b.md -m mine --agent blue
printf 'one!\\ntwo\\nTHREE\\n' | tollgate write a.md --agent blue
tollgate commit -m mine --agent blue
tollgate commit -m mine --agent blue --json
tollgate commit -m theirs --agent red --json
git status --short -- a.md b.md",
    ),
    (
        "run",
        "tollgate run --mode observe --agent blue -- sh -c 'echo new > b.md'
tollgate run --mode observe --agent blue --json -- sh -c 'echo newer > b.md'
tollgate run --mode observe -- sh -c 'exit 3'
tollgate run --mode observe -- missing-program
tollgate run --mode nonsense -- true
tollgate run --json",
    ),
];

pub(super) const LEDGER: &[Script] = &[
    (
        "history",
        "tollgate history
echo four | tollgate write a.md --agent blue
tollgate history
tollgate history --json
tollgate history missing.md
tollgate history --since nonsense
tollgate history --task paint --json",
    ),
    (
        "show",
        "tollgate show 1
echo four | tollgate write a.md --agent blue
tollgate show 1
tollgate show 1 --json
tollgate show paint
tollgate show t-0000000000000000 --json
tollgate show",
    ),
    (
        "blame",
        "tollgate blame a.md
echo four | tollgate write a.md --agent blue
tollgate blame a.md --json
tollgate blame a.md:1 | cut -c1-10
tollgate blame a.md:9
tollgate blame missing.md",
    ),
    (
        "bisect",
        "tollgate bisect -- false
echo four | tollgate write a.md --agent blue
echo five | tollgate write a.md --agent green
tollgate bisect --steps -- grep -q one a.md
tollgate bisect --steps --json -- grep -q one a.md
tollgate bisect -- true
tollgate bisect -- false
tollgate bisect",
    ),
    (
        "diff",
        "tollgate diff --since 1h
echo four | tollgate write a.md --agent blue
tollgate diff --since 1h
tollgate diff --since 1 --json
tollgate diff",
    ),
    (
        "restore",
        "echo four | tollgate write a.md --agent blue
echo five | tollgate write a.md --agent blue
tollgate restore a.md --at 1
tollgate restore a.md --at 1 --yes
tollgate restore a.md --at 1 --yes --json
tollgate restore a.md --at 2 --dry-run --json
tollgate restore a.md --at nonsense
tollgate restore a.md",
    ),
    (
        "undo",
        "tollgate undo
echo four | tollgate write a.md --agent blue
tollgate undo
tollgate undo --json
? tollgate undo
tollgate undo a.md --yes
tollgate undo --yes --json
tollgate undo missing.md --yes",
    ),
    (
        "recovery",
        "tollgate recovery nonsense
tollgate recovery nonsense --json",
    ),
    (
        "recovery list",
        "tollgate recovery list
echo four | tollgate write a.md --agent blue
tollgate recovery list
tollgate recovery list --json
tollgate recovery list a.md b.md",
    ),
    (
        "recovery show",
        "echo four | tollgate write a.md --agent blue
tollgate recovery list
tollgate recovery show $ID
tollgate recovery show $ID --json
tollgate recovery show 0000000000000000000000
tollgate recovery show nonsense --json",
    ),
    (
        "recovery restore",
        "echo four | tollgate write a.md --agent blue
tollgate recovery list
tollgate recovery restore $ID
tollgate recovery restore $ID --json
tollgate recovery restore 0000000000000000000000
tollgate recovery restore nonsense --json",
    ),
    (
        "ledger",
        "tollgate ledger nonsense
tollgate ledger nonsense --json",
    ),
    (
        "ledger tail",
        "tollgate ledger tail
tollgate turn begin --agent blue
tollgate read a.md --turn $TURN
echo four | tollgate write a.md --turn $TURN
echo foreign > a.md
tollgate delete a.md --turn $TURN
tollgate task claim paint --agent red
tollgate ledger tail
tollgate ledger tail -n 1 --json
tollgate ledger tail --agent red
tollgate ledger tail --agent green
tollgate ledger tail --type NONSENSE
tollgate ledger tail --type NONSENSE --json",
    ),
    (
        "ledger verify",
        "tollgate ledger verify
echo four | tollgate write a.md --agent blue
echo five | tollgate write a.md --agent blue
tollgate ledger verify
tollgate ledger verify --json
sed -i 1s/blue/pink/ .tollgate/ledger.jsonl
tollgate ledger verify
tollgate ledger verify --json",
    ),
    (
        "ledger audit",
        "echo four | tollgate write a.md --agent blue
tollgate ledger audit
tollgate ledger audit --json
tollgate ledger audit --records missing.jsonl",
    ),
    (
        "export",
        "echo four | tollgate write a.md --agent blue
tollgate export --to ndjson
tollgate export --to cloudevents --out events.jsonl
tollgate export --to cloudevents --out events.jsonl --json
tollgate export --to nonsense
tollgate export --to ndjson --since nonsense --json",
    ),
    (
        "status",
        "tollgate status
tollgate status --json
tollgate task claim pay-the-rent --agent cloud
tollgate task draft pay-the-rent --claim-id $CLAIM 'Transfer 900 EUR'
tollgate task release pay-the-rent --claim-id $CLAIM
tollgate turn begin --agent blue
? tollgate status
tollgate status --json
tollgate status -C missing",
    ),
    (
        "doctor",
        "tollgate doctor | grep -v 'file system\\|^[a-z]* *run '
tollgate doctor --json | grep -o '\"healthy\":[a-z]*\\|\"check\":\"[a-z ]*\"'
echo nonsense > .tollgate/config.toml
tollgate doctor > ../said; code=$?; grep -v 'file system\\|^[a-z]* *run ' ../said; exit $code
tollgate doctor -C missing --json",
    ),
];

pub(super) const PROGRAMS: &[Script] = &[
    (
        "",
        "tollgate --version
tollgate nonsense
tollgate nonsense --json
tollgate -C",
    ),
    (
        "init",
        "mkdir ../new
tollgate init -C ../new
tollgate init -C ../new --json
tollgate init -C ../new --vault --host claude-code
tollgate init -C ../new --vault --host claude-code --mcp claude-code --json
tollgate init -C ../new --remove
tollgate init -C ../new --host nonsense
tollgate init -C missing --json",
    ),
    (
        "hook",
        r#"tollgate hook nonsense
echo nonsense | tollgate hook claude-code
echo '{"session_id":"s","cwd":"'$PWD'","hook_event_name":"SessionStart"}' | tollgate hook claude-code
echo '{"session_id":"s","cwd":"'$PWD'","hook_event_name":"PreToolUse","tool_name":"Write","tool_use_id":"c","tool_input":{"file_path":"'$PWD'/.git/config","content":""}}' | tollgate hook claude-code --json"#,
    ),
    (
        "mcp",
        r#"tollgate mcp --agent blue < /dev/null
echo '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}' | tollgate mcp --agent blue
tollgate mcp missing
tollgate mcp missing --json"#,
    ),
    (
        "serve",
        "tollgate serve --listen nonsense
tollgate serve --listen nonsense --json
tollgate serve --listen 203.0.113.1:80
TOLLGATE_AGENT=blue tollgate serve",
    ),
    (
        "token",
        "tollgate token nonsense
tollgate token nonsense --json",
    ),
    (
        "token add",
        "tollgate token add blue | tr a-zA-Z0-9 x
tollgate token add prometheus --monitor --json | sed 's/\"token\":\"[^\"]*\"/\"token\":\"xxx\"/'
tollgate token add blue
tollgate token add blue --json
TOLLGATE_AGENT=blue tollgate token add red",
    ),
    (
        "token list",
        "tollgate token list
tollgate token add blue > /dev/null
tollgate token list
tollgate token list --json
tollgate token list blue",
    ),
    (
        "token remove",
        "tollgate token add blue > /dev/null
tollgate token remove blue
tollgate token remove blue
tollgate token remove blue --json
tollgate token add blue > /dev/null
tollgate token remove blue --json",
    ),
    (
        "trust",
        "tollgate trust
tollgate trust --json
printf '[hooks.formatters]\\nmd = [\"fmt\"]\\n' >> .tollgate/config.toml
tollgate trust
tollgate trust --json
? tollgate trust
tollgate trust --remove",
    ),
    (
        "man",
        "tollgate man ../man
tollgate man ../man --json
tollgate man a.md/man
tollgate man",
    ),
    (
        "completions",
        "tollgate completions fish
tollgate completions fish --json
tollgate completions nonsense",
    ),
];
