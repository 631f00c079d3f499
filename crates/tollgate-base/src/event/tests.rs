//! Every event as it stands in the file, byte for byte.

use serde_json::json;

use super::*;
use crate::digest::Digest;
use crate::task::State;
use crate::task::{Mode, Tenure, Verdict};
use serde_json::Value;

const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn claim_id() -> crate::name::ClaimId {
    "c-0123456789abcdef".parse().unwrap()
}

fn step() -> crate::name::StepId {
    "s-0123456789abcdef".parse().unwrap()
}

fn task() -> crate::task::TaskName {
    "x.md".parse().unwrap()
}

fn ended() -> EndedAttempt {
    EndedAttempt { claim_id: claim_id(), epoch: 7, result: Verdict::Failure, duration_s: 3 }
}

fn written(hash_before: Option<Digest>, hash_after: Option<Digest>) -> FileChanged {
    FileChanged {
        id: "1".into(),
        tool_name: "write_file".into(),
        target_file: "a".into(),
        hash_before,
        hash_after,
        moved_to: None,
        guarantee: None,
        owner: None,
        executable: false,
        recovered: false,
        took_us: None,
        via: None,
        level: None,
    }
}

fn refused() -> WriteRefused {
    WriteRefused {
        unfinished: None,
        tool_name: "edit_file".into(),
        target_file: "a".into(),
        baseline_hash: Some(Digest::of(b"abc")),
        current_hash: None,
    }
}

/// Each event with its payload and result as they stand in the file. `HASH` stands for the hash.
fn all() -> Vec<(Event, &'static str, &'static str)> {
    let hash = Some(Digest::of(b"abc"));
    let whole = FileChanged {
        moved_to: Some("b".into()),
        guarantee: Some(Guarantee::NoQuiet),
        owner: Some(FileOwner::Changed),
        executable: true,
        recovered: true,
        took_us: Some(5),
        via: Some("run".into()),
        level: Some("transaction".into()),
        ..written(hash, hash)
    };
    let folder = FolderMoved {
        id: "2".into(),
        tool_name: "move_file".into(),
        target_file: "d".into(),
        moved_to: "e".into(),
        folder: true,
        files: 2,
        recovered: false,
    };
    let decided = |decision| Event::Approval(TaskDecided { task: task(), decision, step: step() });
    let reclaimed = |attempt, reason: &str| TaskReclaimed {
        task: task(),
        attempt,
        reason: Some(reason.into()),
        step: step(),
    };
    let by = || "ann".to_owned();
    vec![
        (
            Event::Mutation(Mutation::File(written(None, hash)), MutationStatus::Applied),
            r#"{"id":"1","tool_name":"write_file","target_file":"a","hash_before":null,"hash_after":"sha256:HASH"}"#,
            r#"{"status":"APPLIED"}"#,
        ),
        (
            Event::Mutation(Mutation::File(whole), MutationStatus::Undone),
            r#"{"id":"1","tool_name":"write_file","target_file":"a","hash_before":"sha256:HASH","hash_after":"sha256:HASH","moved_to":"b","guarantee":"no_quiet","owner":"changed","executable":true,"recovered":true,"took_us":5,"via":"run","level":"transaction"}"#,
            r#"{"status":"UNDONE"}"#,
        ),
        (
            Event::Mutation(Mutation::Folder(folder), MutationStatus::Applied),
            r#"{"id":"2","tool_name":"move_file","target_file":"d","moved_to":"e","folder":true,"files":2}"#,
            r#"{"status":"APPLIED"}"#,
        ),
        (
            Event::MutationConflict(refused(), RefusalStatus::Denied, ErrorType::StaleFile),
            r#"{"tool_name":"edit_file","target_file":"a","baseline_hash":"sha256:HASH","current_hash":null}"#,
            r#"{"status":"DENIED","error_type":"STALE_FILE"}"#,
        ),
        (
            Event::MutationRefused(refused(), RefusalStatus::Observed, ErrorType::UnreadFile),
            r#"{"tool_name":"edit_file","target_file":"a","baseline_hash":"sha256:HASH","current_hash":null}"#,
            r#"{"status":"OBSERVED","error_type":"UNREAD_FILE"}"#,
        ),
        (
            Event::Commit(OwnChangesCommitted {
                commit: "0123abcd".into(),
                branch: Some("main".into()),
                tree: ".".into(),
                paths: vec!["a".into()],
                whole: true,
                recovered: false,
            }),
            r#"{"commit":"0123abcd","branch":"main","tree":".","paths":["a"],"whole":true}"#,
            r#"{"status":"COMMITTED"}"#,
        ),
        (
            Event::LateExternalWrite(LateWrite {
                recovery_id: "3".into(),
                target_file: "a".into(),
                baseline_hash: None,
                found_hash: hash,
                replaced_by: "blue".parse().unwrap(),
            }),
            r#"{"recovery_id":"3","target_file":"a","baseline_hash":null,"found_hash":"sha256:HASH","replaced_by":"blue"}"#,
            r#"{"status":"KEPT"}"#,
        ),
        (
            Event::ReservationExpired(ReservationVoid {
                tool_name: "Write".into(),
                target_file: "a".into(),
                since: "2026-11-05T10:00:00.5Z".parse().unwrap(),
            }),
            r#"{"tool_name":"Write","target_file":"a","since":"2026-11-05T10:00:00.5Z"}"#,
            r#"{"status":"EXPIRED"}"#,
        ),
        (
            Event::Claim(TaskClaimed {
                task: task(),
                claim_id: claim_id(),
                epoch: 7,
                mode: Mode::Draft,
                from: State::NeedsAction,
                attempt: 1,
                waited_ms: 20,
                step: step(),
            }),
            r#"{"task":"x.md","claim_id":"c-0123456789abcdef","epoch":7,"mode":"draft","from":"Needs_Action","attempt":1,"waited_ms":20,"step":"s-0123456789abcdef"}"#,
            r#"{"status":"CLAIMED"}"#,
        ),
        (
            Event::ClaimLost(ClaimLost { task: task(), from: State::Approved, step: step() }),
            r#"{"task":"x.md","from":"Approved","step":"s-0123456789abcdef"}"#,
            r#"{"status":"LOST"}"#,
        ),
        (
            Event::ClaimFailed(ClaimFailed { task: task(), error: "disk full".into(), step: step() }),
            r#"{"task":"x.md","error":"disk full","step":"s-0123456789abcdef"}"#,
            r#"{"status":"FAILED"}"#,
        ),
        (
            Event::Renew(ClaimRenewed {
                task: task(),
                claim_id: claim_id(),
                tenure: Tenure::Leased("2026-11-05T10:00:00Z".parse().unwrap()),
                step: step(),
            }),
            r#"{"task":"x.md","claim_id":"c-0123456789abcdef","tenure":{"leased":"2026-11-05T10:00:00Z"},"step":"s-0123456789abcdef"}"#,
            r#"{"status":"RENEWED"}"#,
        ),
        (
            Event::Release(
                TaskReleased { task: task(), attempt: ended(), reason: None, step: step() },
                State::Done,
            ),
            r#"{"task":"x.md","claim_id":"c-0123456789abcdef","epoch":7,"result":"failure","duration_s":3,"step":"s-0123456789abcdef"}"#,
            r#"{"status":"Done"}"#,
        ),
        (
            decided(Decision::Approve { by: by(), sha256: Digest::of(b"abc"), edited_from: None }),
            r#"{"task":"x.md","decision":"approve","by":"ann","sha256":"HASH","step":"s-0123456789abcdef"}"#,
            r#"{"status":"APPROVED"}"#,
        ),
        (
            decided(Decision::Approve { by: by(), sha256: Digest::of(b"abc"), edited_from: hash }),
            r#"{"task":"x.md","decision":"approve","by":"ann","sha256":"HASH","edited_from":"HASH","step":"s-0123456789abcdef"}"#,
            r#"{"status":"APPROVED"}"#,
        ),
        (
            decided(Decision::Reject { by: by(), reason: "no".into() }),
            r#"{"task":"x.md","decision":"reject","by":"ann","reason":"no","step":"s-0123456789abcdef"}"#,
            r#"{"status":"REJECTED"}"#,
        ),
        (
            decided(Decision::Retry { by: by(), reason: None }),
            r#"{"task":"x.md","decision":"retry","by":"ann","step":"s-0123456789abcdef"}"#,
            r#"{"status":"Needs_Action"}"#,
        ),
        (
            decided(Decision::Edit {
                by: by(),
                state: State::NeedsAction,
                sha256: Digest::of(b"abc"),
                edited_from: Digest::of(b"abc"),
            }),
            r#"{"task":"x.md","decision":"edit","by":"ann","sha256":"HASH","edited_from":"HASH","step":"s-0123456789abcdef"}"#,
            r#"{"status":"Needs_Action"}"#,
        ),
        (
            decided(Decision::Void { reason: "changed".into() }),
            r#"{"task":"x.md","decision":"void","reason":"changed","step":"s-0123456789abcdef"}"#,
            r#"{"status":"Pending_Approval"}"#,
        ),
        (
            decided(Decision::Ask { reason: "moved".into() }),
            r#"{"task":"x.md","decision":"ask","reason":"moved","step":"s-0123456789abcdef"}"#,
            r#"{"status":"Pending_Approval"}"#,
        ),
        (
            Event::Reclaim(reclaimed(Some(ended()), "interrupted"), State::Rejected),
            r#"{"task":"x.md","claim_id":"c-0123456789abcdef","epoch":7,"result":"failure","duration_s":3,"reason":"interrupted","step":"s-0123456789abcdef"}"#,
            r#"{"status":"Rejected"}"#,
        ),
        (
            Event::Reclaim(reclaimed(None, "no claim"), State::NeedsAction),
            r#"{"task":"x.md","reason":"no claim","step":"s-0123456789abcdef"}"#,
            r#"{"status":"Needs_Action"}"#,
        ),
        (
            Event::Breaker(breaker(Some("2026-11-15T10:00:10Z"))),
            r#"{"failures":5,"reason":"exit status 1","until":"2026-11-15T10:00:10Z"}"#,
            r#"{"status":"OPEN"}"#,
        ),
        (
            Event::Breaker(breaker(None)),
            r#"{"failures":5,"reason":"exit status 1"}"#,
            r#"{"status":"CLOSED"}"#,
        ),
        (Event::TurnStarted(TurnMark {}), "{}", r#"{"status":"OK"}"#),
        (Event::TurnEnded(TurnMark {}), "{}", r#"{"status":"OK"}"#),
        (
            Event::LedgerHealed(TailMoved { bytes_dropped: 9, kept_in: "ledger.torn-3".into() }),
            r#"{"bytes_dropped":9,"kept_in":"ledger.torn-3"}"#,
            r#"{"status":"HEALED"}"#,
        ),
        (
            Event::Other {
                action_type: "NEWER".into(),
                payload: json!({"b": 1, "a": 2}),
                result: json!(null),
            },
            r#"{"b":1,"a":2}"#,
            "null",
        ),
    ]
}

fn breaker(until: Option<&str>) -> BreakerTurned {
    let until = until.map(|until| until.parse().unwrap());
    BreakerTurned { failures: 5, reason: "exit status 1".into(), until }
}

#[test]
fn every_event_has_exactly_these_bytes_and_is_read_back_from_them() {
    let mut seen: Vec<String> = Vec::new();
    for (event, payload, result) in all() {
        let name = event.action_type();
        let text = format!(r#"{{"action_type":"{name}","payload":{payload},"result":{result}}}"#);
        let text = text.replace("HASH", HASH);
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
        seen.push(name.to_owned());
    }
    for known in Event::ACTION_TYPES {
        assert!(seen.iter().any(|name| name == known), "{known} is not in this test");
    }
}

#[test]
fn fields_that_a_later_version_adds_do_not_hide_the_event() {
    for (event, ..) in all() {
        let mut json = serde_json::to_value(&event).unwrap();
        json["payload"]["added"] = 1.into();
        let Event::Other { .. } = event else {
            json["result"]["added"] = 1.into();
            assert_eq!(serde_json::from_value::<Event>(json).unwrap(), event);
            continue;
        };
    }
}

#[test]
fn what_no_version_writes_is_kept_as_it_is() {
    for (event, ..) in all() {
        let json = serde_json::to_value(&event).unwrap();
        let changed =
            [("payload", json!(null)), ("result", json!({"status": "?"})), ("action_type", json!("?"))];
        for (key, value) in changed {
            let mut json = json.clone();
            json[key] = value;
            let read: Event = serde_json::from_value(json.clone()).unwrap();
            assert!(matches!(read, Event::Other { .. }), "{json}");
            assert_eq!(serde_json::to_value(&read).unwrap(), json);
        }
    }
}

#[test]
fn the_words_of_a_result_are_those_in_the_file() {
    for (event, _, result) in all() {
        let result: Value = serde_json::from_str(result).unwrap();
        let values = result.as_object().into_iter().flat_map(serde_json::Map::values);
        let words: Vec<&str> = values.filter_map(Value::as_str).collect();
        assert_eq!(event.result_words().into_iter().map(|(_, word)| word).collect::<Vec<_>>(), words);
    }
}

#[test]
fn lines_are_found_by_the_names_in_their_payload() {
    for (event, payload, _) in all() {
        let payload: Value = serde_json::from_str(payload).unwrap();
        let Keys { change, task, step } = event.keys();
        let found = [("id", change), ("task", task), ("step", step)];
        assert_eq!(found.map(|(key, _)| payload[key].as_str()), found.map(|(_, value)| value), "{payload}");
    }
}

/// As a page or a log shows it: the agent is `blue`.
fn shown(event: &Event) -> String {
    let described = event.described();
    let parts = described.sentence.iter().map(|part| match part {
        Fragment::Words(words) => *words,
        Fragment::Agent => "blue",
        Fragment::File(text) | Fragment::Task(text) | Fragment::Person(text) | Fragment::Code(text) => text,
        Fragment::State(state) => state.as_str(),
    });
    let detail = described.detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
    let reason = described.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{:?} {}{detail}{reason}", described.tone, parts.collect::<String>())
}

#[test]
fn people_read_one_sentence_about_each() {
    let sentences: Vec<String> = all().iter().map(|(event, ..)| shown(event)).collect();
    assert_eq!(
        sentences,
        [
            "Good blue created a",
            "Bad the change of a by blue was rolled back after a power cut",
            "Good blue moved d to e",
            "Bad blue was refused: a is stale",
            "Bad blue wrote a in spite of UNREAD_FILE",
            "Good blue committed a as 0123abcd (1 file on main)",
            "Bad another program wrote a too late; its bytes are kept",
            "Bad the reservation of a by blue expired (tool Write, reserved at 2026-11-05T10:00:00.5Z)",
            "Neutral blue claimed x.md (c-0123456789abcdef, attempt 1, mode draft)",
            "Neutral blue lost the race for x.md",
            "Bad blue could not claim x.md: disk full",
            "Neutral blue renewed the claim on x.md (c-0123456789abcdef)",
            "Good blue released x.md to Done (c-0123456789abcdef, failure after 3 s)",
            "Good ann approved x.md",
            "Good ann edited and approved x.md",
            "Neutral ann rejected x.md: no",
            "Neutral ann wants x.md to be tried again",
            "Neutral ann edited x.md",
            "Neutral the approval of x.md is void: changed",
            "Bad a person must look at x.md: moved",
            "Bad x.md was taken back from blue (to Rejected, c-0123456789abcdef, failure after 3 s): interrupted",
            "Bad x.md was taken back from blue (to Needs_Action): no claim",
            "Bad blue stopped claiming tasks: its command fails (5 failures in a row, next try at 2026-11-15T10:00:10Z): exit status 1",
            "Good blue claims tasks again: exit status 1",
            "Neutral blue began a turn",
            "Neutral blue ended a turn",
            "Bad a torn line was moved out of the ledger (9 bytes, kept in ledger.torn-3)",
            "Neutral blue NEWER",
        ]
    );
    let hash = Some(Digest::of(b"abc"));
    for (before, after, expected) in [(hash, hash, "wrote"), (hash, None, "deleted")] {
        let event = Event::Mutation(Mutation::File(written(before, after)), MutationStatus::Applied);
        assert_eq!(shown(&event), format!("Good blue {expected} a"));
    }
}

#[test]
fn types_of_lines_have_their_names() {
    for (event, ..) in all() {
        let Event::Other { .. } = event else {
            let name: String = format!("{event:?}").chars().take_while(|c| c.is_alphanumeric()).collect();
            let name = name.chars().fold(String::new(), |mut text, c| {
                if c.is_uppercase() && !text.is_empty() {
                    text.push('_');
                }
                text.push(c.to_ascii_uppercase());
                text
            });
            assert_eq!(event.action_type(), name);
            continue;
        };
    }
}
