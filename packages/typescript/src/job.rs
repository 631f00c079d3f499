//! A call in a thread of its own, and the promise of its answer.

use napi::bindgen_prelude::*;
use serde_json::Value;
use tollgate_binding::{Answered, CallFailure};

/// A call, and how its answer becomes a value of JavaScript.
pub struct Job<T, J> {
    call: Option<Box<dyn FnOnce() -> Answered<T> + Send>>,
    into: fn(T) -> J,
}

impl<T, J> Task for Job<T, J>
where
    T: Send + 'static,
    J: ToNapiValue + TypeName,
{
    type Output = T;
    type JsValue = J;

    fn compute(&mut self) -> Result<T> {
        match self.call.take() {
            Some(call) => call().map_err(|failure| error(&failure)),
            None => Err(Error::from_reason("a call is made once")),
        }
    }

    fn resolve(&mut self, _: Env, output: T) -> Result<J> {
        Ok((self.into)(output))
    }
}

fn error(failure: &CallFailure) -> Error {
    Error::from_reason(failure.json().to_string())
}

/// A call with an answer of its own type.
pub(crate) fn job<T, J>(
    call: impl FnOnce() -> Answered<T> + Send + 'static,
    into: fn(T) -> J,
) -> AsyncTask<Job<T, J>>
where
    T: Send + 'static,
    J: ToNapiValue + TypeName,
{
    AsyncTask::new(Job { call: Some(Box::new(call)), into })
}

/// A call whose answer is JSON.
pub(crate) fn json_job(
    call: impl FnOnce() -> Answered<Value> + Send + 'static,
) -> AsyncTask<Job<Value, String>> {
    job(call, |value| value.to_string())
}
