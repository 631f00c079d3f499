//! Bytes in and out of commands: everything on stdin, and the content of a file in JSON.

use std::io::{self, IsTerminal, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tollgate::error::Fault;

use crate::error::CliError;
use crate::{output, words};

/// Everything on stdin.
pub(crate) fn stdin() -> Result<Vec<u8>, CliError> {
    let mut stdin = io::stdin().lock();
    if stdin.is_terminal() {
        output::tell(words::STDIN_IS_READ);
    }
    let mut bytes = Vec::new();
    match stdin.read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(source) => {
            Err(CliError::Fault(Fault::Io { doing: "read", path: "standard input".into(), source }))
        }
    }
}

/// Adds bytes to JSON: as text if they are UTF-8, otherwise as base64 with a null text.
pub(crate) fn put_content(json: &mut Value, bytes: Vec<u8>) {
    match String::from_utf8(bytes) {
        Ok(text) => json["content"] = text.into(),
        Err(error) => {
            json["content"] = Value::Null;
            json["content_base64"] = STANDARD.encode(error.as_bytes()).into();
        }
    }
}
