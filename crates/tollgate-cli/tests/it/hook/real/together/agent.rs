//! A scripted model that works like an agent which does not look around: it writes, stages, commits and stashes.

use std::collections::VecDeque;

use super::super::model::Act;
use super::{Dice, Shared, lines_in, locked};

/// What an agent wants to do next.
#[derive(Debug, Clone)]
enum Plan {
    /// Reads its own file, then adds a line with its file tool.
    ReadOwn,
    EditOwn,
    /// Reads the file of all, then writes it with one line more.
    ReadNotes,
    WriteNotes,
    Append,
    Draft,
    /// A command. What it is for is known by its text.
    Run(&'static str),
    /// A commit of everything, of what is staged, or of this agent's own changes.
    CommitAll,
    CommitStaged,
    CommitOwn,
    Stash,
    Pop,
    /// To a branch of its own, and back.
    Leave,
    Return,
}

pub(super) struct Agent {
    name: &'static str,
    log: Shared,
    dice: Dice,
    acts: usize,
    lines: usize,
    plans: VecDeque<Plan>,
    /// The act that is under way, and the line that it writes.
    last: Option<(Plan, Option<String>)>,
    branch: String,
    is_away: bool,
}

impl Agent {
    pub(super) fn new(name: &'static str, log: Shared) -> Self {
        let dice = Dice(name.bytes().fold(1, |seed, byte| seed * 31 + u64::from(byte)));
        let (plans, branch) = (VecDeque::new(), "main".to_owned());
        Self { name, log, dice, acts: 0, lines: 0, plans, last: None, branch, is_away: false }
    }

    /// The next act, after this was shown.
    pub(super) fn next(&mut self, shown: &str, is_over: bool) -> Option<Act> {
        self.learn(shown);
        let plan = self.plans.pop_front();
        if plan.is_none() && is_over {
            return None;
        }
        let plan = plan.unwrap_or_else(|| self.round());
        let (act, line) = self.act(&plan, shown);
        self.last = Some((plan, line));
        self.acts += 1;
        Some(act)
    }

    /// What the last act has come to.
    fn learn(&mut self, shown: &str) {
        let is_refused = shown.contains("error_type");
        let mut log = locked(&self.log);
        for line in lines_in(shown) {
            log.seen.entry((self.name, line.to_owned())).or_insert(self.acts);
        }
        log.refused += usize::from(is_refused);
        let Some((plan, line)) = self.last.take() else { return };
        let is_done = !is_refused
            && !["rror", "ailed", "fatal", "ot found", "denied"].iter().any(|word| shown.contains(word));
        match plan {
            _ if is_done && line.is_some() => {
                log.written.insert(line.unwrap(), self.name);
            }
            // It does what the refusal says.
            Plan::CommitAll | Plan::CommitStaged if shown.contains("tollgate commit") => {
                self.plans.push_front(Plan::CommitOwn);
            }
            Plan::Stash if is_done => self.plans.push_front(Plan::Pop),
            Plan::Leave if is_done => {
                self.is_away = true;
                self.branch = format!("topic_{}_{}", self.name, self.acts - 1);
                self.plans.extend([Plan::ReadOwn, Plan::EditOwn, Plan::CommitAll, Plan::Return]);
            }
            Plan::Return if is_done => {
                self.is_away = false;
                self.branch = "main".into();
            }
            _ => {}
        }
    }

    /// The next things to do.
    fn round(&mut self) -> Plan {
        use Plan::{
            Append, CommitAll, CommitStaged, Draft, EditOwn, Leave, Pop, ReadNotes, ReadOwn, Return, Run,
            Stash, WriteNotes,
        };
        let plans: &[Plan] = match self.dice.roll(12) {
            _ if self.acts == 0 => &[ReadOwn, EditOwn],
            _ if self.is_away => &[Return],
            0..=2 => &[ReadOwn, EditOwn],
            3 | 4 => &[ReadNotes, WriteNotes],
            5 => &[Append, Draft],
            6 => &[CommitAll],
            7 => &[Draft, Run("git add -A"), CommitStaged],
            // It looks at everything before it commits.
            8 => &[
                Run(
                    "git diff HEAD; for f in $(git ls-files -o --exclude-standard); do echo $f; cat $f; done",
                ),
                CommitAll,
            ],
            9 => &[Append, Stash],
            10 => &[Pop],
            _ => &[Leave],
        };
        self.plans.extend(plans.iter().cloned());
        self.plans.pop_front().unwrap()
    }

    /// How it does it, and the line that this writes.
    fn act(&mut self, plan: &Plan, shown: &str) -> (Act, Option<String>) {
        let (name, act, branch) = (self.name, self.acts, self.branch.clone());
        let message = format!("'{name} {act} {branch}'");
        let run = |command: String| (Act::Shell(command.leak()), None);
        match plan {
            Plan::ReadOwn => (Act::Read(name), None),
            Plan::EditOwn => {
                let own = lines_in(shown).filter(|line| line.starts_with(name)).last();
                let Some(last) = own.map(str::to_owned) else { return run(format!("cat {name}")) };
                let line = self.line();
                let text = format!("{last}\n{line}");
                (Act::Edit(name, last.leak(), text.leak()), Some(line))
            }
            Plan::ReadNotes => run("cat notes".into()),
            Plan::WriteNotes => {
                let line = self.line();
                let notes: String =
                    lines_in(shown).chain([line.as_str()]).map(|line| format!("{line}\n")).collect();
                (run(format!("cat > notes <<'EOF'\n{notes}EOF")).0, Some(line))
            }
            Plan::Append => {
                let line = self.line();
                (run(format!("echo {line} >> notes")).0, Some(line))
            }
            Plan::Draft => {
                let line = self.line();
                (run(format!("mkdir -p drafts && echo {line} > drafts/{line}")).0, Some(line))
            }
            Plan::Run(command) => (Act::Shell(command), None),
            Plan::CommitAll => run(format!("git commit -q -a -m {message}")),
            Plan::CommitStaged => run(format!("git commit -q -m {message}")),
            Plan::CommitOwn => run(format!("tollgate commit -m {message}")),
            Plan::Stash => {
                run(format!("git stash push -q -m {message} || git stash push -q -m {message} -- {name}"))
            }
            Plan::Pop => run(format!(
                "n=$(git stash list | grep -n -m 1 ': {name} ' | cut -d : -f 1); [ -z \"$n\" ] || git stash pop -q stash@{{$((n - 1))}}"
            )),
            Plan::Leave => run(format!("git switch -q -c topic_{name}_{act}")),
            Plan::Return => run("git switch -q main".into()),
        }
    }

    fn line(&mut self) -> String {
        self.lines += 1;
        format!("{}-{:04}", self.name, self.lines)
    }
}
