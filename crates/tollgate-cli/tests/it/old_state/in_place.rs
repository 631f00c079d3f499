//! Makes unpacked state of format 1 look as if it had never been moved.
//!
//! Format 1 identifies some things by inode numbers, which no archive keeps: the file of a planned step, the workspace of a
//! planned ledger line, and the clone of a card. This file replaces them with the new numbers. It knows format 1, which does
//! not change any more.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde_json::Value;
use tollgate::digest::Digest;

/// The ids of the workspaces: the old one, and what it is now.
type Ids = BTreeMap<String, String>;

pub(super) fn restore(top: &Path, manifest: &Value) {
    let clones = manifest["git"].as_object().unwrap().keys().map(|clone| format!("git/{clone}"));
    let places: Vec<String> =
        ["folder".to_owned(), "neighbour".to_owned()].into_iter().chain(clones).collect();
    let mut ids = Ids::new();
    for place in &places {
        let known = place.split('/').fold(manifest, |value, key| &value[key]);
        if let Some(old) = known["identity"].as_str() {
            let new = identity(&top.join(place));
            let heads = top.join("state/tollgate/heads");
            if heads.join(old).exists() {
                fs::rename(heads.join(old), heads.join(&new)).unwrap();
            }
            ids.insert(old.to_owned(), new);
        }
    }
    for place in &places {
        let vault = top.join(place).join("vault");
        let git = vault.join(".tollgate/git");
        if git.exists() {
            let clone = fs::read_to_string(git.join("clone")).unwrap();
            let (id, _) = clone.split_once(' ').unwrap();
            fs::write(git.join("clone"), format!("{id} {}\n", fs::metadata(&git).unwrap().ino())).unwrap();
            restore_vault(&git.join("tree"), &ids);
        } else if vault.exists() {
            restore_vault(&vault, &ids);
        }
    }
}

fn restore_vault(vault: &Path, ids: &Ids) {
    let private = vault.join(".tollgate/vault");
    for entry in fs::read_dir(private.join("log")).unwrap() {
        let path = entry.unwrap().path();
        let log = fs::read(&path).unwrap();
        fs::write(&path, restored_log(&log, vault, ids)).unwrap();
    }
    for entry in fs::read_dir(private.join("owed")).unwrap() {
        let path = entry.unwrap().path();
        let owed = fs::read_to_string(&path).unwrap();
        fs::write(&path, restored_plan(&owed, vault, ids)).unwrap();
    }
}

/// A log with other numbers in its plans. Its lines are chained by their checksums; what follows the last line is kept.
fn restored_log(log: &[u8], vault: &Path, ids: &Ids) -> Vec<u8> {
    let mut restored = Vec::new();
    let (mut at, mut old_sum, mut new_sum) = (0, 0, 0);
    while let Some(len) = log[at..].iter().position(|byte| *byte == b'\n') {
        let line = &log[at..at + len];
        let Some(json) = line.get(9..) else { break };
        let sum = crc32(old_sum, json);
        if line[..8] != *format!("{sum:08x}").as_bytes() {
            break;
        }
        let json = restored_plan(str::from_utf8(json).unwrap(), vault, ids);
        new_sum = crc32(new_sum, json.as_bytes());
        restored.extend(format!("{new_sum:08x} {json}\n").as_bytes());
        (at, old_sum) = (at + len + 1, sum);
    }
    restored.extend(&log[at..]);
    restored
}

/// A plan with the id that its workspace has now, and the inode that its file has now. Any other line as it is.
fn restored_plan(json: &str, vault: &Path, ids: &Ids) -> String {
    let value: Value = serde_json::from_str(json).unwrap();
    let plan = value.get("Plan").unwrap_or(&value);
    let (Some(old_ino), Some(old_id)) = (plan["ino"].as_u64(), plan["journal"].as_str()) else {
        return json.to_owned();
    };
    let step = &plan["step"];
    let name = step["task"].as_str().unwrap();
    let found = [&step["to"], &step["from"]].map(|slot| vault.join(folder_of(slot)).join(name));
    let ino = found.iter().find_map(|path| fs::metadata(path).ok()).map_or(old_ino, |found| found.ino());
    json.replace(&format!("\"ino\":{old_ino},"), &format!("\"ino\":{ino},"))
        .replace(&format!("\"journal\":\"{old_id}\""), &format!("\"journal\":\"{}\"", ids[old_id]))
}

fn folder_of(slot: &Value) -> PathBuf {
    match (slot["Free"].as_str(), slot["InProgress"].as_str()) {
        (Some(state), _) => state.into(),
        (_, Some(agent)) => Path::new("In_Progress").join(agent),
        _ => panic!("{slot} is not a place"),
    }
}

/// By what format 1 knows a workspace: its path, its inode and its birth.
fn identity(root: &Path) -> String {
    let found = fs::metadata(root).unwrap();
    let born = found.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let mut known = root.as_os_str().as_bytes().to_vec();
    known.push(0);
    known.extend(found.ino().to_le_bytes());
    known.extend(born.map_or(0, |born| born.as_nanos()).to_le_bytes());
    Digest::of(&known).to_string()[..16].to_owned()
}

/// The checksum of these bytes, continued from the checksum of the bytes before.
fn crc32(before: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!before, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ if sum & 1 == 1 { 0xEDB8_8320 } else { 0 })
    })
}
