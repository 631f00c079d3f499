//! A call in a thread of the pool, and the promise of its answer; or the same call at once, on the event loop.

use napi::bindgen_prelude::*;
use serde_json::Value;
use tollgate_binding::Answered;

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
            Some(call) => run(call),
            None => Err(Error::from_reason("a call is made once")),
        }
    }

    fn resolve(&mut self, _: Env, output: T) -> Result<J> {
        Ok((self.into)(output))
    }
}

fn run<T>(call: impl FnOnce() -> Answered<T>) -> Result<T> {
    call().map_err(|failure| Error::from_reason(failure.json().to_string()))
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

fn json_text(value: Value) -> String {
    value.to_string()
}

/// A call whose answer is JSON.
pub(crate) fn json_job(
    call: impl FnOnce() -> Answered<Value> + Send + 'static,
) -> AsyncTask<Job<Value, String>> {
    job(call, json_text)
}

/// What a call gives that has a synchronous form, too: the promise of an answer, or the answer. The macros of napi throw an
/// error only if they see the word `Result` where the call is declared, so it is not in this type.
pub(crate) type Reply<T, J> = Either<AsyncTask<Job<T, J>>, J>;

/// A call that blocks the event loop if its caller asks for that, and otherwise a job.
pub(crate) fn reply<T, J>(
    sync: Option<bool>,
    call: impl FnOnce() -> Answered<T> + Send + 'static,
    into: fn(T) -> J,
) -> Result<Reply<T, J>>
where
    T: Send + 'static,
    J: ToNapiValue + TypeName,
{
    if sync == Some(true) { run(call).map(into).map(Either::B) } else { Ok(Either::A(job(call, into))) }
}

/// Such a call whose answer is JSON.
pub(crate) fn json_reply(
    sync: Option<bool>,
    call: impl FnOnce() -> Answered<Value> + Send + 'static,
) -> Result<Reply<Value, String>> {
    reply(sync, call, json_text)
}
