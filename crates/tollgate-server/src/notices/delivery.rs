//! Delivering notices: to a command, to a signed webhook, or to both. Each has its own queue and its own thread, so one that fails
//! does not delay the other.
//!
//! A webhook follows the Standard Webhooks specification: `webhook-id` is the same in every try, so that a receiver can drop
//! a repetition; `webhook-signature` is the HMAC-SHA256 of `ID.TIMESTAMP.BODY`.

use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use sha2::Sha256;
use tollgate::error::{At, Fault, Result};
use tollgate::settings::NotifySettings;
use tollgate_base::program::run_with_input;
use ureq::tls::TlsConfig;

use crate::secret::Secret;

/// The number of notices that wait for the command, and for the webhook. More mean that nobody reads them.
const QUEUE: usize = 64;

/// The time for one try.
const TRY: Duration = Duration::from_secs(10);

/// The pauses between the tries of one notice. Together less than three minutes: a later notice says more than an old one.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(30), Duration::from_secs(120)];

/// Whom to tell. The program that starts the server has checked that the user agrees to it.
#[derive(Debug, Clone)]
pub struct NoticeTarget {
    /// What to tell, and the command.
    pub settings: NotifySettings,
    /// The webhook, if there is one.
    pub webhook: Option<Webhook>,
    /// The pauses between the tries. Their number is the number of further tries.
    pub pauses: Vec<Duration>,
}

impl NoticeTarget {
    /// With the usual pauses. `secret` is that of the webhook: `whsec_` and base64, or any text.
    pub fn new(settings: NotifySettings, secret: Option<&str>) -> Result<Self> {
        let webhook = match (&settings.webhook, secret.filter(|secret| !secret.is_empty())) {
            (None, _) => None,
            (Some(url), Some(secret)) => Some(Webhook::new(url.clone(), secret)?),
            (Some(_), None) => {
                let what =
                    "`[notify] webhook` needs a secret for its signature: set `TOLLGATE_NOTIFY_SECRET`";
                return Err(Fault::invalid(what.to_owned()));
            }
        };
        Ok(Self { settings, webhook, pauses: PAUSES.to_vec() })
    }
}

/// An address, and the key of its signatures.
#[derive(Clone)]
pub struct Webhook {
    url: String,
    key: Vec<u8>,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Webhook {
    /// With this secret: `whsec_` and base64, or any text.
    pub fn new(url: String, secret: &str) -> Result<Self> {
        let key = match secret.strip_prefix("whsec_") {
            Some(encoded) => base64::engine::general_purpose::STANDARD.decode(encoded).map_err(|_| {
                Fault::invalid("the secret of the webhook has `whsec_`, but not base64 after it")
            })?,
            None => secret.as_bytes().to_vec(),
        };
        Ok(Self { url, key })
    }

    fn signature(&self, id: &str, timestamp: i64, body: &str) -> Result<String, String> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).map_err(|error| error.to_string())?;
        mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
        Ok(format!("v1,{}", base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes())))
    }

    fn post(&self, id: &str, body: &str) -> Result<(), String> {
        let timestamp = Timestamp::now().as_second();
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        // A redirect could lead to an address that the user has not agreed to.
        let config =
            ureq::Agent::config_builder().timeout_global(Some(TRY)).max_redirects(0).tls_config(tls).build();
        let request = ureq::Agent::from(config)
            .post(&self.url)
            .header("content-type", "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp.to_string())
            .header("webhook-signature", self.signature(id, timestamp, body)?);
        let answer = request.send(body).map_err(|error| error.to_string())?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("the webhook answered {status}")),
        }
    }
}

/// The figures of deliveries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct DeliveryStatus {
    sent: u64,
    /// Given up after all tries.
    failed: u64,
    /// Not even tried, because too many waited.
    dropped: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

/// Delivers one notice: its id, and its text. An error is the reason in a sentence.
type Courier = Box<dyn Fn(&str, &str) -> Result<(), String> + Send>;

/// The notices that wait to be delivered, and their threads.
pub(crate) struct NoticeQueue {
    settings: NotifySettings,
    /// One for the command, one for the webhook.
    queues: Vec<SyncSender<String>>,
    status: Arc<Mutex<DeliveryStatus>>,
}

impl NoticeQueue {
    /// Starts the threads.
    pub(crate) fn start(target: NoticeTarget) -> Result<Self> {
        let NoticeTarget { settings, webhook, pauses } = target;
        let command = Some(settings.command.clone()).filter(|command| !command.is_empty());
        let command = command.map(|command| -> Courier { Box::new(move |_, body| run(&command, body)) });
        let webhook = webhook.map(|webhook| -> Courier { Box::new(move |id, body| webhook.post(id, body)) });
        let status = Arc::<Mutex<DeliveryStatus>>::default();
        let start = |deliver: Courier| {
            let (queue, waiting) = sync_channel(QUEUE);
            let (pauses, told) = (pauses.clone(), status.clone());
            // It ends with the process, or when the queue is dropped.
            let started =
                thread::Builder::new().spawn(move || deliver_all(&waiting, &deliver, &pauses, &told));
            started.at("start", "the thread that delivers notices")?;
            Ok(queue)
        };
        let queues = command.into_iter().chain(webhook).map(start).collect::<Result<_>>()?;
        Ok(Self { settings, queues, status })
    }

    pub(crate) fn settings(&self) -> &NotifySettings {
        &self.settings
    }

    pub(crate) fn status(&self) -> DeliveryStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Never waits.
    pub(crate) fn send(&self, mut notice: Value) {
        notice["time"] = Timestamp::now().to_string().into();
        let body = notice.to_string();
        for queue in &self.queues {
            if queue.try_send(body.clone()).is_err() {
                self.status.lock().unwrap_or_else(PoisonError::into_inner).dropped += 1;
            }
        }
    }
}

fn deliver_all(
    waiting: &Receiver<String>,
    deliver: &Courier,
    pauses: &[Duration],
    status: &Mutex<DeliveryStatus>,
) {
    for body in waiting {
        tried(pauses, status, |id| deliver(id, &body));
    }
}

/// Tries until it succeeds, or all tries have failed.
fn tried(pauses: &[Duration], status: &Mutex<DeliveryStatus>, make: impl Fn(&str) -> Result<(), String>) {
    let count = |count: &dyn Fn(&mut DeliveryStatus)| {
        count(&mut status.lock().unwrap_or_else(PoisonError::into_inner));
    };
    let id = match Secret::random() {
        Ok(random) => format!("msg_{}", random.reveal()),
        Err(_) => return count(&|status| status.failed += 1),
    };
    for pause in pauses.iter().map(Some).chain([None]) {
        match make(&id) {
            Ok(()) => {
                return count(&|status| {
                    status.sent += 1;
                    status.last_error = None;
                });
            }
            Err(why) => count(&|status| status.last_error = Some(why.clone())),
        }
        match pause {
            Some(pause) => thread::sleep(*pause),
            None => count(&|status| status.failed += 1),
        }
    }
}

/// Runs the command with the notice on its standard input.
fn run(command: &[String], body: &str) -> Result<(), String> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    match run_with_input(&mut command, body.as_bytes(), TRY) {
        Ok(Some(ended)) if ended.status.success() => Ok(()),
        Ok(Some(ended)) => Err(format!("`{program}` failed: {}", ended.status)),
        Ok(None) => Err(format!("`{program}` did not end within {} seconds", TRY.as_secs())),
        Err(error) => Err(format!("`{program}` cannot be run: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::time::Instant;

    #[test]
    fn a_signature_is_that_of_the_specification() {
        // The example of the Standard Webhooks specification.
        let webhook = Webhook::new(String::new(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature =
            webhook.signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, "{\"test\": 2432232314}");
        assert_eq!(signature.unwrap(), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(Webhook::new(String::new(), "whsec_?").is_err());
        let shown = format!("{:?}", Webhook::new("https://x".into(), "very-secret").unwrap());
        assert!(!shown.contains("very-secret"), "{shown}");
    }

    #[test]
    fn a_webhook_without_a_secret_is_refused() {
        let settings = NotifySettings { webhook: Some("http://x".into()), ..NotifySettings::default() };
        assert!(NoticeTarget::new(settings.clone(), None).is_err());
        assert!(NoticeTarget::new(settings.clone(), Some("")).is_err());
        assert!(NoticeTarget::new(settings, Some("s")).unwrap().webhook.is_some());
    }

    #[test]
    fn a_delivery_is_tried_a_limited_number_of_times_with_the_same_id() {
        let status = Mutex::<DeliveryStatus>::default();
        let ids = Mutex::new(Vec::new());
        let pauses = [Duration::ZERO; 3];
        tried(&pauses, &status, |id| {
            ids.lock().unwrap().push(id.to_owned());
            Err("down".into())
        });
        let mut seen = ids.lock().unwrap().clone();
        assert_eq!(seen.len(), 4);
        seen.dedup();
        assert_eq!(seen.len(), 1);
        let failed =
            DeliveryStatus { failed: 1, last_error: Some("down".into()), ..DeliveryStatus::default() };
        assert_eq!(*status.lock().unwrap(), failed);
        let answers = Mutex::new(vec![Ok(()), Err("down".to_owned())]);
        tried(&pauses, &status, |_| answers.lock().unwrap().pop().unwrap());
        let sent = DeliveryStatus { sent: 1, failed: 1, ..DeliveryStatus::default() };
        assert_eq!(*status.lock().unwrap(), sent);
    }

    #[test]
    fn a_full_queue_drops_and_never_waits() {
        let settings =
            NotifySettings { command: vec!["sleep".into(), "30".into()], ..NotifySettings::default() };
        let delivery =
            NoticeQueue::start(NoticeTarget { settings, webhook: None, pauses: Vec::new() }).unwrap();
        let begun = Instant::now();
        for number in 0..QUEUE + 10 {
            delivery.send(serde_json::json!({"number": number}));
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
        // One or none is being delivered.
        assert!((9..=10).contains(&delivery.status().dropped), "{:?}", delivery.status());
    }

    #[test]
    fn a_command_that_fails_does_not_delay_the_webhook() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (heard, called) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for mut stream in listener.incoming().map(std::result::Result::unwrap) {
                // A server that answers without reading the whole request resets the connection.
                let (mut request, mut chunk) = (String::new(), [0; 4096]);
                while !request.ends_with('}') {
                    let count = stream.read(&mut chunk).unwrap();
                    request += std::str::from_utf8(&chunk[..count]).unwrap();
                }
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    .unwrap();
                heard.send(()).unwrap();
            }
        });
        let settings = NotifySettings { command: vec!["false".into()], ..NotifySettings::default() };
        let webhook = Some(Webhook::new(url, "s").unwrap());
        let pauses = vec![Duration::from_secs(3600)];
        let delivery = NoticeQueue::start(NoticeTarget { settings, webhook, pauses }).unwrap();
        for number in 0..2 {
            delivery.send(serde_json::json!({"number": number}));
            called.recv_timeout(Duration::from_secs(30)).unwrap();
        }
    }

    #[test]
    fn a_command_gets_the_notice_and_its_failure_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out");
        let shell = |script: &str| ["sh".to_owned(), "-c".to_owned(), script.to_owned()];
        run(&shell(&format!("cat > {}", file.display())), "{\"a\":1}").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\"a\":1}");
        assert!(run(&shell("exit 3"), "x").unwrap_err().contains("exit status: 3"));
        assert!(run(&["/no/such/program".to_owned()], "x").unwrap_err().contains("cannot be run"));
    }
}
