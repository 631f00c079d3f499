//! A path on its way to another process of tollgate, even if it is not UTF-8: for serde.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::path::{EscapedPath, FilePath};

pub(crate) fn serialize<S: Serializer>(path: &FilePath, serializer: S) -> Result<S::Ok, S::Error> {
    EscapedPath(path.as_path().to_owned()).serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<FilePath, D::Error> {
    EscapedPath::deserialize(deserializer).map(|path| FilePath::trusted(path.0))
}
