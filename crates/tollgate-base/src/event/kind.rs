//! From the list of events come the enum, the words of its types and results, writing and reading.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Each line: the variant, its payload, the keys of its result if they vary, the word of its type, and `=>` the
/// status if it follows from the payload.
macro_rules! events {
    ($(
        $(#[$doc:meta])*
        $name:ident($payload:ty $(, $key:ident: $type:ty)*) = $word:literal $(=> $status:expr)?;
    )*) => {
        /// One thing that happened.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Event {
            $($(#[$doc])* $name($payload $(, $type)*),)*
            /// A line that a later version wrote, or that is not as any version writes it.
            Other {
                /// Its type.
                action_type: String,
                /// What was asked for.
                payload: Value,
                /// What came of it.
                result: Value,
            },
        }

        impl Event {
            /// The types of events that this version writes.
            pub const ACTION_TYPES: &[&str] = &[$($word),*];

            /// The type, as it stands in the ledger.
            pub fn action_type(&self) -> &str {
                match self {
                    $(Self::$name(..) => $word,)*
                    Self::Other { action_type, .. } => action_type,
                }
            }

            /// The result, by key: the status, and the type of error if there is one.
            pub fn result_words(&self) -> Vec<(&str, &str)> {
                match self {
                    $(Self::$name(_payload $(, $key)*) => {
                        vec![$((stringify!($key), $key.as_str()),)* $(("status", status(_payload, $status)))?]
                    })*
                    Self::Other { result, .. } => {
                        let word = |key| Some((key, result[key].as_str()?));
                        ["status", "error_type"].into_iter().filter_map(word).collect()
                    }
                }
            }

            /// `None` if it is not as this version writes it.
            pub(crate) fn read<'de, D>(action_type: &str, payload: D, result: D) -> Option<Self>
            where
                D: Deserializer<'de>,
            {
                let result = Value::deserialize(result).ok()?;
                let event = match action_type {
                    $($word => Self::$name(
                        <$payload>::deserialize(payload).ok()?
                        $(, <$type>::deserialize(&result[stringify!($key)]).ok()?)*
                    ),)*
                    _ => return None,
                };
                event.result_words().into_iter().all(|(key, word)| result[key] == word).then_some(event)
            }
        }

        impl Serialize for Event {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let (action_type, words) = (self.action_type(), self.result_words());
                let result = words.into_iter().collect();
                match self {
                    $(Self::$name(payload, ..) => Parts { action_type, payload, result }.serialize(serializer),)*
                    Self::Other { payload, result, .. } => {
                        Parts { action_type, payload, result: result.clone() }.serialize(serializer)
                    }
                }
            }
        }

        impl<'de> Deserialize<'de> for Event {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let Parts::<String, Value> { action_type, payload, result } = Parts::deserialize(deserializer)?;
                let known = Self::read(&action_type, &payload, &result);
                Ok(known.unwrap_or(Self::Other { action_type, payload, result }))
            }
        }
    };
}

pub(super) use events;

/// An event as it stands in the ledger.
#[derive(Serialize, Deserialize)]
pub(super) struct Parts<T, P> {
    pub(super) action_type: T,
    pub(super) payload: P,
    pub(super) result: Value,
}

pub(super) fn status<P>(payload: &P, of: impl Fn(&P) -> &'static str) -> &'static str {
    of(payload)
}
