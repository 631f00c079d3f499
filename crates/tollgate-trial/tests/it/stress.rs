//! A short stress campaign keeps all promises; with a participant that breaks the rules it notices that.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::strace::folder;

const STRESS: &str = env!("CARGO_BIN_EXE_tollgate-stress");

/// A campaign runs `tollgate` beside itself, which is in another package. A run of all tests has built it already.
pub(crate) fn build(campaign: &Path) {
    if !campaign.with_file_name("tollgate").exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--profile", "test", "-p", "tollgate-cli", "--bin", "tollgate"]);
        assert!(cargo.status().unwrap().success(), "cannot build `tollgate`");
    }
}

fn campaign(arguments: &[&str]) -> (Output, Value) {
    build(Path::new(STRESS));
    let dir = folder();
    let mut command = Command::new(STRESS);
    command.args(["--json", "--seed", "7", "--dir"]).arg(dir.path()).args(arguments).stdin(Stdio::null());
    let output = command.output().unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output, report)
}

#[test]
fn a_short_campaign_keeps_all_promises() {
    let (output, report) = campaign(&["--seconds", "16", "--stores", "folder,git"]);
    println!("{report:#}");
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    let counts = ["lost", "duplicate_owners", "false_alarms", "broken_count"].map(|key| report[key].as_u64());
    assert_eq!(counts, [Some(0); 4], "{report:#}");
    // Everybody took part. On a busy machine, the slowest of them finish nothing in this time.
    let slow = [("run", "operations"), ("hook", "operations"), ("tasks: git", "operations")];
    let doors = ["library", "together", "mcp", "tasks: folder"].map(|door| (door, "done"));
    for (door, count) in doors.into_iter().chain(slow) {
        assert!(report["participants"][door][count].as_u64() > Some(0), "{door}: {report:#}");
    }
    let participants = report["participants"].as_object().unwrap().values();
    assert!(participants.map(|row| row["kills"].as_u64().unwrap()).sum::<u64>() > 5, "{report:#}");
    assert!(report["operations"].as_u64() > Some(2_000), "{report:#}");
    assert!(report["audit"]["changes"].as_u64() > Some(200), "{report:#}");
}

/// The report of the first campaign that notices a participant that breaks the rules. A short one may not, on a busy machine.
fn noticed(rogue: &str) -> Value {
    let mut campaigns = ["4", "8", "16"]
        .map(|seconds| ["--seconds", seconds, "--stores", "folder", "--rogue", rogue])
        .into_iter();
    loop {
        let arguments = campaigns.next().expect("a campaign notices it");
        let (output, report) = campaign(&arguments);
        if output.status.code() == Some(1) {
            assert_eq!(report["kept"], false);
            return report;
        }
    }
}

#[test]
fn a_participant_that_overwrites_guarded_files_is_noticed() {
    let report = noticed("files");
    assert!(report["lost"].as_u64() > Some(0), "{report:#}");
}

#[test]
fn a_worker_without_a_claim_is_noticed() {
    let report = noticed("tasks");
    assert!(report["duplicate_owners"].as_u64() > Some(0), "{report:#}");
}
