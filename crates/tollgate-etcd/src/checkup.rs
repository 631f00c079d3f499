//! What `tollgate doctor` finds out about an etcd: is every node there, in a good version and healthy, do the clocks agree, may
//! we write, and how full is it?

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tollgate_base::error::Result;
use tollgate_base::name::random_id;
use tollgate_vault::checkup::Finding;

use crate::call_error::CallError;
use crate::client::MEMBERS;
use crate::lines::KEEP;
use crate::message::{KeyValue, MembersAnswer, Range, TxnOperation};
use crate::node_failure::{NodeFailure, NodeResult};
use crate::node_report::{NodeReport, each_node};
use crate::readers::LedgerReader;
use crate::shared_store::SharedStore;
use crate::trim::HELD_BACK;

/// Above this difference, times in the ledger, pauses and due times are misleading. Who owns a task does not depend on it.
const SKEW: SignedDuration = SignedDuration::from_secs(5);

/// etcd stops taking writes at 2 GiB unless it is told otherwise.
const NEARLY_FULL: i64 = 3 << 29;

const MIB: i64 = 1 << 20;

impl SharedStore {
    /// All checks. If the engine cannot be reached or has a version that is not used, the others are left out.
    pub(crate) fn look_for_problems(&self) -> Result<Vec<Finding>> {
        let nodes = each_node(&self.client);
        let answering = nodes.iter().filter(|(_, report)| report.is_ok()).count();
        // Most of them decide; the others are missed only when another one fails.
        let are_enough = 2 * answering > nodes.len();
        let has_wrong = |(_, report): &(_, NodeResult<NodeReport>)| {
            report.as_ref().is_ok_and(|report| report.wrong_version.is_some())
        };
        let is_usable = answering > 0 && !nodes.iter().any(has_wrong);
        let mut findings: Vec<Finding> =
            nodes.into_iter().flat_map(|(node, report)| node_findings(&node, report, are_enough)).collect();
        if self.client.tells_password {
            let what = "your password crosses the network unencrypted: everybody on the way can read it";
            findings.push(
                Finding::warning(what)
                    .fix("let the nodes use TLS, and name them with `etcds://` in the store"),
            );
        }
        if !is_usable {
            return Ok(findings);
        }
        findings.push(self.may_write());
        // An object, because etcd 3.6 refuses `null`.
        let all = json!({});
        let members = self.client.call(MEMBERS, &all, self.client.deadline);
        findings.push(match members {
            Err(error) => {
                Finding::warning(format!("the members are unknown: {}", error.fault(&self.client.shown)))
            }
            Ok(MembersAnswer { members }) => members_finding(members.len()),
        });
        let slow = self.slow_readers(KEEP);
        let are_held_back = slow.as_ref().is_ok_and(|slow| !slow.is_empty());
        let looks = [self.size(are_held_back), self.removed().map(Vec::from_iter), slow];
        for looked in looks {
            match looked {
                Ok(found) => findings.extend(found),
                Err(fault) => {
                    findings.push(Finding::warning(format!("not everything could be checked: {fault}")));
                }
            }
        }
        Ok(findings)
    }

    fn may_write(&self) -> Finding {
        let written = random_id().and_then(|id| {
            let key = self.layout.probe(&id);
            for act in [TxnOperation::put(&key, b"?"), TxnOperation::delete(&key)] {
                self.act(vec![act])?;
            }
            self.check_format()
        });
        match written {
            Ok(()) => Finding::ok("it accepts our writes"),
            Err(fault) => Finding::problem(format!("it does not accept our writes: {fault}")).fix(
                "give the user of `TOLLGATE_STORE_USER` the right to read and write all keys with the prefix of the store, \
                 or make room in the engine",
            ),
        }
    }

    /// Up to when events were removed, if any were.
    fn removed(&self) -> Result<Option<Finding>> {
        let (_, tally) = self.tally()?;
        let told = |time| {
            format!(
                "it keeps the latest {KEEP} lines of the ledger; events up to {time} were removed, and are where exports have put them"
            )
        };
        Ok(tally.time.map(|time| Finding::ok(told(time))))
    }

    /// The readers that keep more than this number of lines from being removed.
    pub(crate) fn slow_readers(&self, keep: usize) -> Result<Vec<Finding>> {
        let readers = self.readers(&self.tally()?.1)?;
        let Some(slowest) = readers.iter().map(|reader| reader.place.revision).min() else {
            return Ok(Vec::new());
        };
        if self.count(&self.layout.lines())? <= keep {
            return Ok(Vec::new());
        }
        let lines = Range {
            limit: HELD_BACK * keep,
            created_since: Some(slowest),
            keys_only: true,
            ..Range::all(&self.layout.lines())
        };
        let lines = self.called(self.client.range(&lines))?.kvs;
        let unread = |reader: &LedgerReader| {
            let is_read = |line: &KeyValue| line.create_revision <= reader.place.revision;
            lines.len() - lines.partition_point(is_read)
        };
        let slow = readers.iter().map(|reader| (reader, unread(reader))).filter(|(_, lines)| *lines > keep);
        let finding = |(reader, lines): (&LedgerReader, usize)| {
            let key = &reader.key;
            Finding::warning(format!(
                "the reader `{key}` keeps {lines} lines of the ledger from being removed"
            ))
            .fix(format!(
                "run this export again on its machine (`.tollgate/exports/` has a file with its name, which says where it \
                 goes), or, if nobody needs it any more, `etcdctl del {key}`; without either, tollgate stops waiting for it after a \
                 week, or when {} lines wait",
                HELD_BACK * keep
            ))
        };
        Ok(slow.map(finding).collect())
    }

    /// How much there is, and whether anybody removes old lines of the ledger, unless readers hold them back.
    pub(crate) fn size(&self, are_held_back: bool) -> Result<Vec<Finding>> {
        let (open, done) = (self.count(&self.layout.open_tasks())?, self.count(&self.layout.final_tasks())?);
        let lines = self.count(&self.layout.lines())?;
        let size = Finding::ok(format!(
            "it has {open} keys of open tasks, {done} final tasks and {lines} lines of the ledger"
        ));
        let too_many = (lines > 2 * KEEP && !are_held_back).then(|| {
            Finding::warning(format!("{lines} lines of the ledger are in the engine, instead of some {KEEP}"))
                .fix("let `tollgate serve`, `work` or `sync --follow` run on any machine: after a minute it removes old lines")
        });
        Ok([size].into_iter().chain(too_many).collect())
    }
}

fn node_findings(node: &str, report: NodeResult<NodeReport>, are_enough: bool) -> Vec<Finding> {
    let (what, fix) = match report {
        Ok(report) => return report_findings(node, &report),
        Err(NodeFailure::Said { code, message }) => (
            CallError::Refused { code, message }.fault(node).to_string(),
            "check the user, the password and the client certificate, or the settings of the node",
        ),
        Err(failed) => (
            format!("the node `{node}` does not answer as it should: {}", failed.text()),
            "start it, or check the address and the network",
        ),
    };
    vec![if are_enough { Finding::warning(what) } else { Finding::problem(what) }.fix(fix)]
}

fn report_findings(node: &str, report: &NodeReport) -> Vec<Finding> {
    let NodeReport { version, wrong_version, login_risk, status, date, asked } = report;
    let mut findings = match wrong_version {
        Some(why) => vec![Finding::problem(format!("the node `{node}`: {why}"))],
        None => vec![Finding::ok(format!("the node `{node}` answers, etcd {version}"))],
    };
    findings.extend(login_risk.iter().map(|risk| {
        Finding::warning(format!("the node `{node}`: {risk}"))
            .fix("install 3.4.22 or later before you add a member")
    }));
    if status.leader == 0 {
        findings.push(
            Finding::problem(format!("the node `{node}` has no leader"))
                .fix("start the other nodes of the cluster"),
        );
    }
    findings.extend(status.errors.iter().map(|error| {
        Finding::problem(format!("the node `{node}` reports `{error}`"))
            .fix("see `etcdctl alarm list`; after `NOSPACE`, compact, defragment and disarm")
    }));
    if status.db_size > NEARLY_FULL {
        let size = status.db_size / MIB;
        findings.push(
            Finding::warning(format!(
                "the node `{node}` has {size} MiB of data, and etcd stops at 2048 MiB by default"
            ))
            .fix("compact and defragment it, or raise `--quota-backend-bytes`"),
        );
    }
    findings.extend(skew(node, date.as_deref(), *asked));
    findings
}

fn members_finding(members: usize) -> Finding {
    match members {
        1 => Finding::warning("the cluster has one member: if it is lost, all tasks are")
            .fix("run three or five members on different machines"),
        even if even % 2 == 0 => Finding::warning(format!(
            "the cluster has {even} members, which survives no more failures than {} would",
            even - 1
        ))
        .fix("use an odd number of members"),
        odd => Finding::ok(format!("the cluster has {odd} members")),
    }
}

/// The date of HTTP has seconds only, and is a little old when it arrives.
fn skew(node: &str, date: Option<&str>, asked: Timestamp) -> Option<Finding> {
    let date = jiff::fmt::rfc2822::parse(date?).ok()?.timestamp();
    let apart = asked.duration_since(date).abs();
    (apart > SKEW).then(|| {
        let apart = Duration::try_from(apart).unwrap_or_default().as_secs();
        Finding::warning(format!("the clock of this machine and that of `{node}` differ by {apart} s"))
            .fix("synchronise the clocks: times in the ledger and pauses between attempts depend on them")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_vault::checkup::Level;

    #[test]
    fn clocks_that_differ_are_reported() {
        let asked = Timestamp::from_second(1_700_000_000).unwrap();
        assert_eq!(skew("n", Some("Tue, 14 Nov 2023 22:13:20 GMT"), asked), None);
        let found = skew("n", Some("Tue, 14 Nov 2023 22:18:20 GMT"), asked).unwrap();
        assert!(found.what.contains("300 s"), "{}", found.what);
        assert_eq!(skew("n", None, asked), None);
    }

    #[test]
    fn only_an_odd_number_of_several_members_is_as_it_should_be() {
        let levels = [1, 2, 3, 4, 5].map(|members| members_finding(members).level);
        assert_eq!(levels, [Level::Warning, Level::Warning, Level::Ok, Level::Warning, Level::Ok]);
    }
}
