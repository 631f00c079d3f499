//! A shell script works like an agent: read, think, write; after a refusal, read again and redo the change.

use crate::world::World;

#[test]
fn read_think_write_in_a_turn() {
    let world = World::new();
    world.puts("notes.md", "# notes\n");
    let script = r#"
        set -u
        export TOLLGATE_TURN=$(tollgate turn begin --agent script)

        tollgate read notes.md > draft
        echo "mine" >> draft
        echo "theirs" >> notes.md                 # somebody else is faster

        tollgate write notes.md < draft > report 2> words
        echo "write: $?"
        head -1 words
        cut -c 1-26 report

        # As the hint says: read it again, redo the change, write.
        tollgate read notes.md > draft && echo "mine" >> draft
        tollgate write notes.md < draft > /dev/null
        echo "write again: $?"
        cat notes.md

        # Restore the replaced bytes.
        id=$(tollgate recovery list notes.md | head -1 | cut -d ' ' -f 1)
        tollgate recovery show $id | tail -1
        tollgate recovery restore $id > /dev/null
        echo "restore: $?"
        tail -1 notes.md

        tollgate turn end > /dev/null
        echo "end: $?"
        tollgate read notes.md > /dev/null 2>&1
        echo "after the end: $?"
        unset TOLLGATE_TURN
        tollgate read notes.md --lines x > /dev/null 2>&1
        echo "usage: $?"
        tollgate ledger tail | tr -s ' ' | cut -d ' ' -f 4-
        tollgate ledger verify > /dev/null && echo valid
    "#;
    insta::assert_snapshot!(world.script(script).ends().filtered, @r#"
    exit 0
    --- stdout
    write: 1
    refused: `notes.md` is stale
    {"error_type":"STALE_FILE"
    write again: 0
    # notes
    theirs
    mine
    theirs
    restore: 0
    theirs
    end: 0
    after the end: 3
    usage: 2
    script TURN_STARTED OK
    script MUTATION_CONFLICT notes.md DENIED STALE_FILE
    script MUTATION notes.md APPLIED
    script MUTATION notes.md APPLIED
    script TURN_ENDED OK
    valid
    "#);
}

/// Several loops change one file at the same time: no line is lost or duplicated.
#[test]
fn parallel_scripts_lose_no_update() {
    let world = World::with("[guard]\ndurability = \"fast\"\n");
    world.puts("list", "");
    let script = r#"
        work() {
            for number in 1 2 3 4 5; do
                turn=$(tollgate turn begin --agent $1)
                until tollgate read list --turn $turn > draft-$1 && echo "$1 $number" >> draft-$1 &&
                    tollgate write list --turn $turn < draft-$1 > /dev/null 2>&1; do :; done
                tollgate turn end --turn $turn > /dev/null
            done
        }
        work a & work b & work c &
        wait
        sort list | uniq | wc -l
        wc -l < list
    "#;
    assert_eq!(world.script(script).ends().is(0).stdout(), "15\n15\n");
}
