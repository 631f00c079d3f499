//! A campaign: Claude Code, Codex CLI and Copilot CLI work in one checkout, beside a person who edits, commits and switches
//! branches. Each line that somebody writes is one word that occurs nowhere else, so at the end the tree and the repository tell
//! what has become of it. The same campaign runs without tollgate, as the control.
//!
//! `TOLLGATE_CAMPAIGN_SECONDS` says how long it lasts.

mod agent;
mod person;
mod verdict;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use super::model::{Mind, Speaks};
use super::program::{Real, programs};
use crate::world::{World, until};
use agent::Agent;
use verdict::Verdict;

const AGENTS: [(&str, Speaks); 3] =
    [("claude", Speaks::Claude), ("codex", Speaks::Codex), ("copilot", Speaks::Copilot)];
const PERSON: &str = "person";

/// Long enough for each agent to do everything it does at least once.
const SHORT: Duration = Duration::from_secs(20);

/// `notes` is everybody's file. Each agent and the person have a file of their own. What the programs and tollgate put there is
/// nobody's work. Texts merge line by line, so that no agent has to solve a conflict.
const REPOSITORY: &str = "git init -q -b main && git config user.name a && git config user.email a@b
    printf '%s\\n' .tollgate .claude .codex .github > .git/info/exclude
    echo '* merge=union' > .gitattributes; mkdir drafts; touch drafts/.keep
    for name in claude codex copilot person; do echo $name-0000 | tee -a notes > $name; done
    git add . && git commit -q -m start";

/// What was written, and who has seen it.
#[derive(Default)]
struct Log {
    /// The lines of which their author knows that they were written
    written: BTreeMap<String, &'static str>,
    /// The number of the act before which an agent saw a line
    seen: BTreeMap<(&'static str, String), usize>,
    /// The number of calls that tollgate refused
    refused: usize,
}

type Shared = Arc<Mutex<Log>>;

fn locked(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lines in a text.
fn lines_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| {
        let is_number = |text: &str| text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_digit());
        word.split_once('-').is_some_and(|(name, number)| {
            is_number(number) && (name == PERSON || AGENTS.iter().any(|(agent, _)| *agent == name))
        })
    })
}

/// Numbers that look random, and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn campaign(is_guarded: bool) -> Option<Verdict> {
    let bin = programs()?;
    let seconds = std::env::var("TOLLGATE_CAMPAIGN_SECONDS").ok();
    let length = seconds.map_or(SHORT, |text| Duration::from_secs(text.parse().unwrap()));
    let world = World::bare();
    world.script(REPOSITORY).ends().is(0);
    let log = Shared::default();
    if is_guarded {
        AGENTS
            .iter()
            .for_each(|(_, speaks)| drop(world.run(&format!("init --host {}", speaks.host())).is(0)));
    }
    // All begin when the last program has started.
    let started = Arc::new(AtomicUsize::new(0));
    let begin = |started: &AtomicUsize| {
        until("the start of all programs", || (started.load(SeqCst) == AGENTS.len()).then_some(()));
    };
    let reals = AGENTS.map(|(name, speaks)| {
        let mut agent = Agent::new(name, Arc::clone(&log));
        let (started, mut end) = (Arc::clone(&started), None);
        let mind: Mind = Box::new(move |shown: &str| {
            let end = *end.get_or_insert_with(|| {
                started.fetch_add(1, SeqCst);
                begin(&started);
                Instant::now() + length
            });
            agent.next(shown, Instant::now() > end)
        });
        let mut real = Real::new(&world, speaks, mind);
        real.bare = !is_guarded;
        real
    });
    std::thread::scope(|scope| {
        let played: Vec<_> = reals.iter().map(|real| scope.spawn(|| real.plays(bin))).collect();
        begin(&started);
        person::works(&world, &log, || played.iter().all(ScopedJoinHandle::is_finished));
    });
    let verdict = Verdict::of(&world, &locked(&log));
    #[allow(clippy::print_stdout, reason = "the figures are in the docs")]
    {
        println!("with tollgate: {is_guarded}\n{verdict}");
    }
    Some(verdict)
}

#[test]
fn three_programs_and_a_person_lose_nothing_in_one_checkout() {
    let Some(verdict) = campaign(true) else { return };
    assert!(verdict.is_clean(), "{verdict}");
    let by_agents = AGENTS.iter().filter(|(name, _)| verdict.commits[name] > 0).count();
    assert!(by_agents > 0, "nobody could work: {verdict}");
}

#[test]
fn three_programs_and_a_person_lose_work_without_tollgate() {
    let Some(verdict) = campaign(false) else { return };
    assert!(!verdict.lost.is_empty() && !verdict.unseen.is_empty(), "it is no control: {verdict}");
}
