//! The test script of the claim-by-move contract, word for word, with `tollgate work` as its two agents.

use std::path::Path;

use crate::world::World;

/// Runs the script where its two agents are in `PATH`, and the vault of the world is `/vault`, which only a root folder of its own can
/// have.
const STAGE: &str = r##"
set -e
mkdir bin root root/vault
for agent in "a cloud" "b local"; do
    set -- $agent
    printf '#!/bin/sh\nexec tollgate work --agent %s "$@"\n' "$2" > "bin/agent-$1"
    chmod +x "bin/agent-$1"
done
export PATH="$PWD/bin:$PATH" HERE="$PWD"
exec unshare --user --map-root-user --mount sh -ec '
    for entry in /*; do
        if [ -L "$entry" ]; then cp -P "$entry" root; continue; fi
        if [ -d "$entry" ] && [ "$entry" != /vault ]; then mkdir -p "root$entry"; mount --rbind "$entry" "root$entry"; fi
    done
    mount --bind vault root/vault
    exec unshare --root=root sh -c "cd $HERE && exec $CONTRACT"
'
"##;

#[test]
fn the_contracts_test_script_passes() {
    for settle in ["2s", "200ms"] {
        let world = World::with(&format!("[vault]\nsettle = \"{settle}\"\n"));
        world.run("init --vault").is(0);
        let contract =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/integration/test-claim-by-move.sh");
        let ran = world.script(STAGE).env("CONTRACT", contract.canonicalize().unwrap()).ends().is(0);
        let said = ran.stdout();
        assert!(said.contains("✓ All claim-by-move tests: PASSED"), "{said}");
        assert_eq!(said.matches("claimed `test-task.md` for").count(), 1, "{said}");
        let lines = world.json("ledger tail --type CLAIM");
        assert_eq!(lines.as_array().unwrap().len(), 1, "{lines}");
        let board = world.json("task list");
        assert_eq!(board[0]["state"], "In_Progress", "{board}");
        let who = board[0]["agent"].as_str().unwrap();
        let text =
            std::fs::read_to_string(world.path(format!("vault/In_Progress/{who}/test-task.md"))).unwrap();
        for line in [
            "# Test Task",
            "# Claimed Task: test-task",
            &format!("**Claimed By**: {who}"),
            "**Status**: processing",
            "## Progress",
            "<!-- Agent adds progress notes here -->",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
