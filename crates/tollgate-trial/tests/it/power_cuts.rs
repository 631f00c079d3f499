//! A short campaign of power cuts on a real file system loses nothing, its controls lose something, and nothing stays mounted.
//!
//! It needs root, FUSE, loop devices and ext4. Elsewhere it is skipped, with the reason, unless `TOLLGATE_TEST_POWER_CUTS` is
//! `required`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tollgate_testing::until_true;

use crate::strace::spawn;
use crate::stress::build;

const POWER_CUTS: &str = env!("CARGO_BIN_EXE_power-cuts");

/// Every participant but git takes part, in the story with this seed.
fn campaign(images: &str, controls: &str) -> Child {
    build(Path::new(POWER_CUTS));
    let mut command = Command::new(POWER_CUTS);
    command.args(["--json", "--seed", "3", "--file-systems", "ext4"]);
    command.args(["--images", images, "--controls", controls]);
    spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// What the campaign reports; `None` if it was skipped.
fn report(campaign: Child) -> Option<Value> {
    let output = campaign.wait_with_output().unwrap();
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let Some(reason) = report["skipped"][0].as_str() else {
        assert_eq!(output.status.code(), Some(0), "{report:#}");
        return Some(report);
    };
    let is_required = std::env::var("TOLLGATE_TEST_POWER_CUTS").is_ok_and(|value| value == "required");
    assert!(!is_required && output.status.code() == Some(2), "{reason}");
    println!("skipped: {reason}");
    None
}

fn folder(campaign: &Child) -> PathBuf {
    std::env::temp_dir().join(format!("tollgate-power-cuts-{}", campaign.id()))
}

/// The files of all loop devices.
fn files_of_devices() -> Vec<String> {
    let devices = fs::read_dir("/sys/block").unwrap().flatten();
    devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok()).collect()
}

fn has_device(folder: &Path) -> bool {
    files_of_devices().iter().any(|file| file.starts_with(folder.to_str().unwrap()))
}

/// Whether a process of the campaign runs, or something is left of its devices and mounts.
fn is_in_use(folder: &Path) -> bool {
    let name = folder.to_str().unwrap();
    let mut processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .any(|process| fs::read_to_string(process.path().join("cmdline")).is_ok_and(|line| line.contains(name)))
        || fs::read_to_string("/proc/mounts").unwrap().contains(name)
        || has_device(folder)
        // Of a file whose file system is gone, only the name is left.
        || files_of_devices().iter().any(|file| file == "/disk\n")
}

#[test]
fn power_cuts_on_a_real_file_system_lose_nothing_unless_nobody_flushes() {
    let campaign = campaign("4", "3");
    let folder = folder(&campaign);
    let Some(report) = report(campaign) else { return };
    println!("{report:#}");
    let [durable, fast, forgetful] = &report["rows"].as_array().unwrap()[..] else { panic!("{report:#}") };
    let counts = ["images", "lost", "torn", "needs_a_person"].map(|key| durable[key].as_u64());
    assert_eq!(counts, [Some(4), Some(0), Some(0), Some(0)], "{report:#}");
    for control in [fast, forgetful] {
        assert!(control["lost"].as_u64() > Some(0), "{report:#}");
    }
    assert!(!folder.exists());
    until_true("nothing to be left", || !is_in_use(&folder));
}

#[test]
fn a_campaign_of_power_cuts_that_is_killed_leaves_nothing_mounted() {
    let mut campaign = campaign("10000", "0");
    let folder = folder(&campaign);
    until_true("a device", || has_device(&folder) || campaign.try_wait().unwrap().is_some());
    if campaign.try_wait().unwrap().is_some() {
        assert!(report(campaign).is_none(), "it has ended too early");
        return;
    }
    campaign.kill().unwrap();
    campaign.wait().unwrap();
    until_true("nothing to be left", || !is_in_use(&folder));
    // Plain files stay, as after every kill.
    fs::remove_dir_all(&folder).unwrap();
}
