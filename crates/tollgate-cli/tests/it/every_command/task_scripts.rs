//! The lines that show what the commands about tasks do, in the form of `scripts.rs`.

use super::Script;

pub(super) const TASKS: &[Script] = &[
    (
        "task",
        "tollgate task nonsense
tollgate task nonsense --json",
    ),
    (
        "task add",
        "tollgate task add 'Water the plants' --priority high
tollgate task add 'Send the report' --after water-the-plants --json
tollgate task add 'Water the plants' --name paint.md
tollgate task add 'Water the plants' --name paint.md --json
tollgate task add ''
tollgate task add Weed --priority nonsense",
    ),
    (
        "task import",
        r#"echo '[{"number":7,"title":"Fix the gate","body":"It squeaks.","labels":[],"state":"OPEN","url":"https://example.org/7"}]' > issues.json
tollgate task import issues.json
tollgate task import issues.json --json
tollgate task import missing.json
echo nonsense | tollgate task import - --json"#,
    ),
    (
        "task list",
        "tollgate task list
tollgate task list --json
? tollgate task list
tollgate task list --state Done
tollgate task list --state nonsense
mkdir ../empty
tollgate task list -C ../empty
tollgate task list -C ../empty --json",
    ),
    (
        "task show",
        "tollgate task show pay-the-rent
tollgate task show pay-the-rent --json
tollgate task show missing
tollgate task show missing --json",
    ),
    (
        "task why",
        "tollgate task why paint --agent blue
tollgate task why pay-the-rent --agent cloud --json
tollgate task add Sort --action sort
tollgate task why sort --agent cloud
tollgate task why sort --agent cloud --json
tollgate task why missing --agent blue",
    ),
    (
        "task claim",
        "tollgate task claim paint --agent blue
tollgate task claim --next --agent cloud --json
tollgate task claim paint --agent red
tollgate task claim paint --agent red --json
tollgate task claim --next --agent red
tollgate task claim missing --agent red
tollgate task claim --agent red",
    ),
    (
        "task verify",
        "tollgate task claim paint --agent blue
tollgate task verify paint --claim-id $CLAIM
tollgate task verify paint --claim-id $CLAIM --json
tollgate task verify paint --claim-id c-0000000000000000
tollgate task verify paint --claim-id c-0000000000000000 --json
tollgate task verify paint",
    ),
    (
        "task renew",
        "tollgate task claim paint --agent blue
tollgate task renew paint --claim-id $CLAIM
tollgate task renew paint --claim-id $CLAIM --json
tollgate task renew paint --claim-id c-0000000000000000
tollgate task renew paint --claim-id c-0000000000000000 --json",
    ),
    (
        "task progress",
        "tollgate task claim paint --agent blue
tollgate task progress paint --claim-id $CLAIM 'bought the paint'
tollgate task progress paint --claim-id $CLAIM --json 'opened the tin'
tollgate task progress paint --claim-id c-0000000000000000 'spilled it'
tollgate task progress paint 'spilled it' --json",
    ),
    (
        "task draft",
        "tollgate task claim pay-the-rent --agent cloud
tollgate task draft pay-the-rent --claim-id $CLAIM 'Transfer 900 EUR'
tollgate task draft pay-the-rent --claim-id $CLAIM --json 'Transfer 950 EUR'
tollgate task draft pay-the-rent --claim-id c-0000000000000000 'Transfer 1 EUR'
tollgate task draft pay-the-rent --claim-id c-0000000000000000 --json 'Transfer 1 EUR'",
    ),
    (
        "task release",
        "tollgate task claim paint --agent blue
tollgate task release paint --claim-id $CLAIM --note 'two coats'
tollgate task claim pay-the-rent --agent cloud
tollgate task release pay-the-rent --claim-id $CLAIM --result failure --note 'the bank is closed' --json
tollgate task release pay-the-rent --claim-id $CLAIM
tollgate task release pay-the-rent --claim-id $CLAIM --json
tollgate task release paint --claim-id $CLAIM --result failure --to Done",
    ),
    (
        "task approve",
        "tollgate task claim pay-the-rent --agent cloud
tollgate task draft pay-the-rent --claim-id $CLAIM 'Transfer 900 EUR'
tollgate task release pay-the-rent --claim-id $CLAIM
tollgate task approve pay-the-rent
tollgate task approve pay-the-rent --json
? tollgate task approve pay-the-rent
? tollgate task approve paint
tollgate task list",
    ),
    (
        "task reject",
        "tollgate task reject paint --reason 'too cold'
tollgate task reject paint --reason 'too cold' --json
tollgate task reject paint
? tollgate task reject paint --reason 'too cold'
? tollgate task reject paint --reason 'too cold'
tollgate task list",
    ),
    (
        "task retry",
        "? tollgate task reject paint --reason 'too cold'
tollgate task retry paint
tollgate task retry paint --json
? tollgate task retry paint
? tollgate task retry paint
tollgate task claim paint --agent blue
? tollgate task retry paint
? tollgate task retry missing
tollgate task claim pay-the-rent --agent cloud
tollgate task draft pay-the-rent --claim-id $CLAIM 'Transfer 900 EUR'
tollgate task release pay-the-rent --claim-id $CLAIM
? tollgate task retry pay-the-rent
? tollgate task retry pay-the-rent --reason 'pay half of it now'
tollgate task list",
    ),
    (
        "task return",
        "tollgate task claim paint --agent blue
tollgate task return paint
tollgate task return paint --json
? tollgate task return paint
? tollgate task return paint
tollgate task list",
    ),
    (
        "task edit",
        "EDITOR='sed -i s/fence/gate/' tollgate task edit paint
EDITOR='sed -i s/fence/gate/' tollgate task edit paint --json
? EDITOR='sed -i s/fence/gate/' tollgate task edit paint
? EDITOR=true tollgate task edit paint
? EDITOR=false tollgate task edit paint
tollgate task claim paint --agent blue
? EDITOR=true tollgate task edit paint
? EDITOR=true tollgate task edit missing",
    ),
    (
        "task reclaim",
        "tollgate task reclaim --dry-run
tollgate task reclaim --json
tollgate task reclaim paint",
    ),
    (
        "task figures",
        "tollgate task figures
tollgate task claim paint --agent blue
tollgate task figures
tollgate task figures --json
tollgate task figures --state Done",
    ),
    (
        "work",
        "tollgate work --agent blue --once -- sh -c 'echo working on $TOLLGATE_TASK_ID'
tollgate work --agent blue --once --json -- true
tollgate task add Fails
tollgate work --agent blue --once -- sh -c 'echo no luck; exit 7'
tollgate task add Claimed
tollgate work --agent blue
tollgate work --once -- true
tollgate work --agent blue --interval nonsense --json -- true",
    ),
    (
        "sync",
        "tollgate sync
tollgate sync --json
git init -q --bare -b main ../remote.git
git init -q -b main . && git config user.name ada && git config user.email ada@example.org
git add a.md vault && git commit -q -m first && git remote add origin ../remote.git && git push -q origin main
sed -i 's/^.vault.$/[vault]\\nsync = \"git\"/' .tollgate/config.toml
tollgate sync
tollgate sync --json
mv ../remote.git ../gone.git
tollgate sync",
    ),
    (
        "vault",
        "tollgate vault nonsense
tollgate vault nonsense --json",
    ),
    (
        "vault copy",
        "tollgate vault copy
tollgate vault copy --to mysql://db/work
tollgate vault copy --to mysql://db/work --json
tollgate vault copy --to folder
tollgate vault copy --from folder --json",
    ),
];
