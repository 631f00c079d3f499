#!/bin/bash

# 1. Create test task
echo "# Test Task" > /vault/Needs_Action/test-task.md

# 2. Start two agents simultaneously
agent-a --once &
agent-b --once &
wait

# 3. Verify only one agent claimed the task
if [ -f /vault/In_Progress/cloud/test-task.md ]; then
    if [ -f /vault/In_Progress/local/test-task.md ]; then
        echo "✗ Both agents claimed task (FAILED)"
        exit 1
    else
        echo "✓ Cloud agent claimed task (PASSED)"
    fi
elif [ -f /vault/In_Progress/local/test-task.md ]; then
    echo "✓ Local agent claimed task (PASSED)"
else
    echo "✗ No agent claimed task (FAILED)"
    exit 1
fi

# 4. Verify task removed from Needs_Action
if [ -f /vault/Needs_Action/test-task.md ]; then
    echo "✗ Task still in Needs_Action (FAILED)"
    exit 1
else
    echo "✓ Task removed from Needs_Action (PASSED)"
fi

echo "✓ All claim-by-move tests: PASSED"
