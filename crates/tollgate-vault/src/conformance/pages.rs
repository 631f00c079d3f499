//! The queue by pages: what an index of the store says is what a scan says.

use super::harness::Fresh;
use super::world::{World, at, request};
use crate::brief::Rank;
use crate::owner::ClaimKind;
use crate::rules::Release;
use crate::state::State;
use crate::store::TaskSummary;
use tollgate_base::digest::Digest;
use tollgate_base::task::TaskName;

type RankedName = (Option<Rank>, TaskName, State);

fn place(task: &TaskSummary) -> RankedName {
    let rank = task.brief.as_ref().ok().map(|brief| brief.rank(task.modified));
    (rank, task.name.clone(), task.slot.state())
}

/// The whole queue, in pages of this size; `None` if the store has no pages.
fn read(world: &World, limit: usize) -> Option<Vec<RankedName>> {
    let (mut places, mut cursor) = (Vec::new(), Some(String::new()));
    while let Some(after) = cursor {
        let page = world.harness.store.queue_page(&after, limit, at(9)).expect("no fault");
        let Some(page) = page else { return (!after.is_empty()).then_some(places) };
        assert!(page.tasks.len() + page.unfit.len() <= limit, "at most {limit}: {page:?}");
        assert!(page.next.as_ref() != Some(&after), "it goes on");
        places.extend(page.tasks.iter().map(place));
        cursor = page.next;
    }
    Some(places)
}

pub(super) fn pages_of_the_queue_say_what_a_scan_says(fresh: Fresh<'_>) {
    let world = World::new(fresh());
    let vault = &world.vault;
    for (task, text) in [
        ("plain", "text"),
        ("plain b", "text"),
        ("plain.mda", "text"),
        ("low", "---\npriority: low\n---\n"),
        ("high", "---\npriority: high\n---\n"),
        ("due", "---\ndue: 2030-01-02\n---\n"),
        ("sooner", "---\ndue: 2030-01-01\n---\n"),
        ("broken", "---\npriority: banana\n---\n"),
        ("waits", "---\npriority: urgent\nafter: nowhere\n---\n"),
        ("foreign", "---\naction: other\n---\n"),
        ("sent", "---\naction: pay\n---\nten coins"),
        ("offered", "---\naction: pay\n---\nten coins"),
        ("failed", "---\npriority: p1\n---\n"),
        ("edited", "---\npriority: lowest\n---\n"),
        ("mended", "---\npriority: banana\n---\n"),
        ("owned", "text"),
        ("done", "text"),
        ("rejected", "text"),
        ("retried", "text"),
    ] {
        world.add(task, text);
    }
    let claim =
        |task: &str, who: &str| world.claim(&task.parse().expect("a name"), who, ClaimKind::Leased, 1);
    let decided = |task: &str, no: bool| {
        let task: TaskName = task.parse().expect("a name");
        let answer =
            if no { vault.reject(&task, "me", "no", at(3)) } else { vault.approve(&task, "me", None, at(3)) };
        answer.expect("no fault").expect("decided");
    };
    world.release(&claim("failed", "blue"), &Release::failure("no"), 2);
    world.release(&claim("done", "blue"), &Release::success(), 2);
    for task in ["sent", "offered"] {
        world.release(&claim(task, "cloud"), &Release::success(), 2);
    }
    decided("sent", false);
    decided("rejected", true);
    decided("retried", true);
    vault
        .retry(&"retried".parse().expect("a name"), "me", None, at(4))
        .expect("no fault")
        .expect("it is back");
    let _owned = claim("owned", "blue");
    for (task, text) in [("edited", "---\npriority: p0\n---\n"), ("mended", "---\npriority: p0\n---\nnow\n")]
    {
        let task: TaskName = task.parse().expect("a name");
        let seen = Digest::of(world.text(&task).as_bytes());
        vault.edit(&task, "me", seen, text, at(5)).expect("no fault").expect("edited");
    }
    let Some(pages) = read(&world, 100) else { return };
    for limit in [1, 2, 5] {
        assert_eq!(read(&world, limit).as_ref(), Some(&pages), "in pages of {limit}");
    }
    let scan = |state| world.harness.store.scan(state, at(9)).expect("no fault").tasks;
    let mut scanned: Vec<_> =
        scan(State::NeedsAction).iter().chain(&scan(State::Approved)).map(place).collect();
    scanned.sort();
    assert_eq!(pages, scanned, "in the order of the queue");
    let (claimed, _) = vault.claim_next(&request("blue", ClaimKind::Leased), at(9)).expect("no fault");
    assert_eq!(claimed.map(|claimed| claimed.task.stem().to_owned()).as_deref(), Some("edited"));
}
