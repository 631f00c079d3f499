//! The sessions of one agent over HTTP: not more than an agent can use.
//!
//! A client may disappear without ending its session, and a session lives for a day. At the limit, a new session replaces
//! the one that was unused for the longest time. A session that was used a moment ago is never replaced, because its turn
//! would end with it and the client's next write would be unguarded.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionConfig,
};
use rmcp::transport::streamable_http_server::session::{
    EventStore, RestoreOutcome, ServerSseMessage, SessionId, SessionManager,
};

/// The most sessions of one agent. Programs that run several agents under one name have a few.
const MOST: usize = 64;

/// A session that was unused for less than this is in use.
const IN_USE: Duration = Duration::from_secs(10 * 60);

pub(super) struct Sessions {
    inner: LocalSessionManager,
    /// When each session was last used.
    used: Mutex<HashMap<SessionId, Instant>>,
    most: usize,
    in_use: Duration,
}

impl Sessions {
    /// Sessions that end after this time without use.
    pub(super) fn new(idle: Duration) -> Self {
        let mut config = SessionConfig::default();
        // Dropping a session drops its turn, and then the client's next write would be unguarded.
        config.keep_alive = Some(idle);
        let mut inner = LocalSessionManager::default();
        inner.session_config = config;
        Self { inner, used: Mutex::default(), most: MOST, in_use: IN_USE }
    }

    fn used(&self) -> MutexGuard<'_, HashMap<SessionId, Instant>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn make_room(&self) -> Result<(), SessionsError> {
        // The SDK ends idle sessions by itself.
        let live: Vec<SessionId> = self.inner.sessions.read().await.keys().cloned().collect();
        let oldest = {
            let mut used = self.used();
            used.retain(|id, _| live.contains(id));
            if used.len() < self.most {
                return Ok(());
            }
            used.iter().min_by_key(|(_, at)| **at).map(|(id, at)| (id.clone(), *at))
        };
        match oldest {
            Some((id, at)) if at.elapsed() >= self.in_use => {
                self.used().remove(&id);
                Ok(self.inner.close_session(&id).await?)
            }
            _ => Err(SessionsError::TooMany(self.most)),
        }
    }
}

/// Why there is no session.
#[derive(Debug)]
pub(super) enum SessionsError {
    TooMany(usize),
    Sdk(LocalSessionManagerError),
}

impl fmt::Display for SessionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(most) => {
                write!(f, "this agent has {most} sessions in use; end one with DELETE, or use one again")
            }
            Self::Sdk(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SessionsError {}

impl From<LocalSessionManagerError> for SessionsError {
    fn from(error: LocalSessionManagerError) -> Self {
        Self::Sdk(error)
    }
}

impl SessionManager for Sessions {
    type Error = SessionsError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        self.make_room().await?;
        let (id, transport) = self.inner.create_session().await?;
        self.used().insert(id.clone(), Instant::now());
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        Ok(self.inner.initialize_session(id, message).await?)
    }

    /// The SDK asks this at the start of every request.
    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        let exists = self.inner.has_session(id).await?;
        if exists {
            self.used().insert(id.clone(), Instant::now());
        }
        Ok(exists)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.used().remove(id);
        Ok(self.inner.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.inner.create_stream(id, message).await?)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        Ok(self.inner.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.inner.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.inner.resume(id, last_event_id).await?)
    }

    async fn restore_session(&self, _: SessionId) -> Result<RestoreOutcome<Self::Transport>, Self::Error> {
        Ok(RestoreOutcome::NotSupported)
    }

    fn event_store(&self) -> Option<Arc<dyn EventStore>> {
        self.inner.event_store()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_session_replaces_the_one_that_was_unused_for_the_longest_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut sessions =
                Sessions { most: 2, in_use: Duration::ZERO, ..Sessions::new(Duration::from_secs(60)) };
            let (first, _keep) = sessions.create_session().await.unwrap();
            let (second, _keep) = sessions.create_session().await.unwrap();
            assert!(sessions.has_session(&first).await.unwrap(), "used again");
            let (third, _keep) = sessions.create_session().await.unwrap();
            let live = async |id| sessions.has_session(id).await.unwrap();
            assert_eq!([live(&first).await, live(&second).await, live(&third).await], [true, false, true]);
            sessions.in_use = IN_USE;
            let full = sessions.create_session().await.map(|_| ()).unwrap_err();
            assert!(full.to_string().contains("2 sessions in use"), "{full}");
            sessions.close_session(&first).await.unwrap();
            assert!(sessions.create_session().await.is_ok());
        });
    }
}
