//! The test script of the claim-by-move contract, with `tollgate work` as its two agents.

use crate::world::World;

/// The contract's script, except that the folder is a variable and the agents have names.
const SCRIPT: &str = r##"
# 1. Create test task
echo "# Test Task" > $VAULT/Needs_Action/test-task.md

# 2. Start two agents simultaneously
tollgate work --agent cloud --once &
tollgate work --agent local --once &
wait

# 3. Verify only one agent claimed the task
if [ -f $VAULT/In_Progress/cloud/test-task.md ]; then
    if [ -f $VAULT/In_Progress/local/test-task.md ]; then
        echo "✗ Both agents claimed task (FAILED)"
        exit 1
    else
        echo "✓ Cloud agent claimed task (PASSED)"
    fi
elif [ -f $VAULT/In_Progress/local/test-task.md ]; then
    echo "✓ Local agent claimed task (PASSED)"
else
    echo "✗ No agent claimed task (FAILED)"
    exit 1
fi

# 4. Verify task removed from Needs_Action
if [ -f $VAULT/Needs_Action/test-task.md ]; then
    echo "✗ Task still in Needs_Action (FAILED)"
    exit 1
else
    echo "✓ Task removed from Needs_Action (PASSED)"
fi

echo "✓ All claim-by-move tests: PASSED"
"##;

#[test]
fn the_contracts_test_script_passes() {
    for settle in ["2s", "200ms"] {
        let world = World::with(&format!("[vault]\nsettle = \"{settle}\"\n"));
        world.run("init --vault").is(0);
        let ran = world.script(SCRIPT).env("VAULT", world.path("vault")).ends().is(0);
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
