//! The messages of etcd's JSON gateway, as far as tollgate needs them. Pure.
//!
//! The gateway writes bytes in base64 and 64-bit numbers as text, and leaves out what is zero or false.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Bytes, as base64.
pub(crate) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

fn decoded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
    STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)
}

/// A number that the gateway writes as text.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Text(String),
        Plain(i64),
    }
    match Number::deserialize(deserializer)? {
        // Ids of nodes are unsigned.
        Number::Text(text) => text
            .parse::<i64>()
            .or_else(|_| text.parse::<u64>().map(u64::cast_signed))
            .map_err(D::Error::custom),
        Number::Plain(number) => Ok(number),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ResponseHeader {
    #[serde(deserialize_with = "number")]
    pub(crate) revision: i64,
    #[serde(deserialize_with = "number")]
    pub(crate) member_id: i64,
    /// Each leader has a term of its own.
    #[serde(deserialize_with = "number")]
    pub(crate) raft_term: i64,
}

/// One key with its value.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KeyValue {
    #[serde(deserialize_with = "decoded")]
    pub(crate) key: Vec<u8>,
    #[serde(deserialize_with = "decoded")]
    pub(crate) value: Vec<u8>,
    #[serde(deserialize_with = "number")]
    pub(crate) create_revision: i64,
    #[serde(deserialize_with = "number")]
    pub(crate) mod_revision: i64,
    /// The lease to which it is bound; 0: none.
    #[serde(deserialize_with = "number")]
    pub(crate) lease: i64,
}

impl KeyValue {
    /// A key that was written at this revision.
    pub(crate) fn new(key: impl Into<Vec<u8>>, value: Vec<u8>, revision: i64) -> Self {
        Self { key: key.into(), value, create_revision: revision, mod_revision: revision, lease: 0 }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RangeAnswer {
    pub(crate) header: ResponseHeader,
    pub(crate) kvs: Vec<KeyValue>,
    pub(crate) more: bool,
    #[serde(deserialize_with = "number")]
    pub(crate) count: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TxnAnswer {
    pub(crate) header: ResponseHeader,
    pub(crate) succeeded: bool,
    responses: Vec<OneAnswer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OneAnswer {
    response_range: Option<RangeAnswer>,
}

impl TxnAnswer {
    /// The keys that the ranges of the transaction found, in one list for each range.
    pub(crate) fn found(self) -> impl Iterator<Item = Vec<KeyValue>> {
        self.responses.into_iter().filter_map(|one| one.response_range).map(|range| range.kvs)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LeaseAnswer {
    pub(crate) header: ResponseHeader,
    #[serde(rename = "TTL", deserialize_with = "number")]
    pub(crate) ttl: i64,
}

/// What a stream of answers consists of. An error has no result.
#[derive(Debug, Deserialize)]
pub(crate) struct StreamMessage<T> {
    pub(crate) result: T,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WatchAnswer {
    pub(crate) canceled: bool,
    /// If it was cancelled because the engine has forgotten the past: the first revision that it still knows.
    #[serde(deserialize_with = "number")]
    pub(crate) compact_revision: i64,
    pub(crate) events: Vec<KeyEvent>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KeyEvent {
    /// `DELETE`, or nothing for a put.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) kv: KeyValue,
}

/// The error of a call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ErrorAnswer {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) error: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct TokenAnswer {
    pub(crate) token: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct VersionAnswer {
    pub(crate) etcdserver: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StatusAnswer {
    pub(crate) header: ResponseHeader,
    #[serde(rename = "dbSize", deserialize_with = "number")]
    pub(crate) db_size: i64,
    #[serde(deserialize_with = "number")]
    pub(crate) leader: i64,
    pub(crate) errors: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MembersAnswer {
    pub(crate) members: Vec<Value>,
}

/// A condition of a transaction.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub(crate) struct Condition(Value);

impl Condition {
    /// The key was last changed at this revision; 0: it does not exist.
    pub(crate) fn at(key: impl AsRef<[u8]>, revision: i64) -> Self {
        Self(json!({
            "key": encoded(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string(),
        }))
    }

    /// All keys that begin with this were last changed at this revision; 0: there are none.
    pub(crate) fn all_at(prefix: &str, revision: i64) -> Self {
        Self::all(prefix, "EQUAL", revision)
    }

    /// No key that begins with this was changed after this revision.
    pub(crate) fn unchanged_since(prefix: &str, revision: i64) -> Self {
        Self::all(prefix, "LESS", revision + 1)
    }

    fn all(prefix: &str, result: &str, revision: i64) -> Self {
        Self(json!({
            "key": encoded(prefix), "range_end": encoded(end_of(prefix)),
            "target": "MOD", "result": result, "mod_revision": revision.to_string(),
        }))
    }

    /// The key does not exist.
    pub(crate) fn absent(key: impl AsRef<[u8]>) -> Self {
        Self::at(key, 0)
    }

    /// The value of the key begins with this and goes on.
    pub(crate) fn begins(key: &str, prefix: &str) -> [Self; 2] {
        [("GREATER", prefix.as_bytes()), ("LESS", &end_of(prefix))].map(|(result, value)| {
            Self(json!({ "key": encoded(key), "target": "VALUE", "result": result, "value": encoded(value) }))
        })
    }

    /// The key exists.
    pub(crate) fn exists(key: impl AsRef<[u8]>) -> Self {
        Self(json!({ "key": encoded(key), "target": "CREATE", "result": "GREATER", "create_revision": "0" }))
    }
}

/// One act of a transaction.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub(crate) struct TxnOperation(Value);

impl TxnOperation {
    pub(crate) fn put(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        Self(json!({ "request_put": { "key": encoded(key), "value": encoded(value) } }))
    }

    /// The key goes when the lease does.
    pub(crate) fn put_leased(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, lease: i64) -> Self {
        let (key, value) = (encoded(key), encoded(value));
        Self(json!({ "request_put": { "key": key, "value": value, "lease": lease.to_string() } }))
    }

    pub(crate) fn delete(key: impl AsRef<[u8]>) -> Self {
        Self(json!({ "request_delete_range": { "key": encoded(key) } }))
    }

    pub(crate) fn get(key: impl AsRef<[u8]>) -> Self {
        Self(json!({ "request_range": { "key": encoded(key) } }))
    }

    /// Everything that begins with this.
    pub(crate) fn get_all(prefix: &str) -> Self {
        Self(json!({ "request_range": { "key": encoded(prefix), "range_end": encoded(end_of(prefix)) } }))
    }
}

/// A transaction: if all conditions hold, these acts, else the others.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Txn {
    pub(crate) compare: Vec<Condition>,
    pub(crate) success: Vec<TxnOperation>,
    pub(crate) failure: Vec<TxnOperation>,
}

/// The first key after all that begin with `prefix`, which ends with a plain ASCII character.
pub(crate) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// A look at many keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Range {
    /// From this key.
    pub(crate) from: Vec<u8>,
    /// To before this key.
    pub(crate) end: Vec<u8>,
    /// At most this many; 0: all.
    pub(crate) limit: usize,
    /// As it was at this revision; 0: now.
    pub(crate) revision: i64,
    /// Only keys that were created at this revision or later, in the order of their creation. `None`: all, in the order of keys.
    pub(crate) created_since: Option<i64>,
    /// Without the values.
    pub(crate) keys_only: bool,
    /// Only how many there are.
    pub(crate) count_only: bool,
}

impl Range {
    /// Everything that begins with this.
    pub(crate) fn all(prefix: &str) -> Self {
        Self { from: prefix.as_bytes().to_vec(), end: end_of(prefix), ..Self::default() }
    }

    pub(crate) fn body(&self) -> Value {
        let mut body = json!({
            "key": encoded(&self.from),
            "range_end": encoded(&self.end),
            "limit": self.limit.to_string(),
            "revision": self.revision.to_string(),
            "keys_only": self.keys_only,
            "count_only": self.count_only,
        });
        if let Some(since) = self.created_since {
            body["min_create_revision"] = since.to_string().into();
            body["sort_order"] = "ASCEND".into();
            body["sort_target"] = "CREATE".into();
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_the_gateway_is_read() {
        let text = r#"{"header":{"cluster_id":"14841639068965178418","member_id":"10276657743932975437","revision":"7",
            "raft_term":"2"},"succeeded":true,"responses":[{"response_put":{"header":{"revision":"7"}}},
            {"response_range":{"header":{},"kvs":[{"key":"YQ==","create_revision":"3","mod_revision":"7",
            "version":"2","value":"Yg=="}],"count":"1"}}]}"#;
        let answer: TxnAnswer = serde_json::from_str(text).unwrap();
        assert!(answer.succeeded && answer.header.revision == 7);
        let found: Vec<_> = answer.found().collect();
        assert_eq!((found.len(), found[0][0].key.as_slice(), found[0][0].mod_revision), (1, &b"a"[..], 7));
        let missing: RangeAnswer = serde_json::from_str(r#"{"header":{"revision":"7"}}"#).unwrap();
        assert!(missing.kvs.is_empty() && !missing.more);
        let watched =
            r#"{"result":{"header":{},"events":[{"type":"DELETE","kv":{"key":"YQ==","mod_revision":"9"}}]}}"#;
        let watched: StreamMessage<WatchAnswer> = serde_json::from_str(watched).unwrap();
        assert_eq!(watched.result.events[0].kind, "DELETE");
    }
}
