//! Receivers that are busy, slow, or refuse.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::endpoint::{Endpoint, Reply};
use crate::lines::{is_complete, world_with};
use crate::world::{PATIENCE, Process, until};

/// An endpoint that gives these answers, the last one first, and then takes everything.
fn answering(mut replies: Vec<Reply>) -> Endpoint {
    Endpoint::start(move |_| replies.pop().unwrap_or(Reply::Take))
}

#[test]
fn what_a_busy_receiver_does_not_take_is_offered_again() {
    let world = world_with(1200, 500);
    let endpoint = answering(vec![
        Reply::Refuse(504, ""),
        Reply::HangUp,
        Reply::Take,
        Reply::Refuse(502, ""),
        Reply::Refuse(429, ""),
        Reply::Refuse(503, ""),
    ]);
    let ran = world.run(&format!("export --to ndjson --endpoint {}/in", endpoint.url)).is(0);
    assert_eq!(is_complete(&endpoint.text(), 1200), 1200);
    assert!(ran.stderr().contains("waiting: the receiver accepts no events: HTTP 503"), "{ran}");
    assert!(ran.stderr().contains("accepts events again"), "{ran}");
    let first = &endpoint.taken()[0];
    assert_eq!((first.path.as_str(), first.header("content-type")), ("/in", Some("application/x-ndjson")));
}

#[test]
fn the_pause_that_a_receiver_asks_for_is_kept() {
    for refusal in [Reply::Refuse(429, "Retry-After: 2\r\n"), Reply::Refuse(503, "Retry-After: 2\r\n")] {
        let (came, coming) = mpsc::channel();
        let mut refusal = Some(refusal);
        let endpoint = Endpoint::start(move |_| {
            came.send(Instant::now()).unwrap();
            refusal.take().unwrap_or(Reply::Take)
        });
        world_with(3, 100).run(&format!("export --to ndjson --endpoint {}", endpoint.url)).is(0);
        let times: Vec<Instant> = coming.try_iter().collect();
        assert_eq!(times.len(), 2);
        assert!(times[1] - times[0] >= Duration::from_secs(2), "{:?}", times[1] - times[0]);
    }
}

#[test]
fn an_export_stops_where_a_receiver_refuses_for_good_and_continues_there() {
    let world = world_with(1200, 500);
    let endpoint = answering(vec![Reply::Refuse(400, ""), Reply::Take]);
    let words = format!("export --to ndjson --endpoint {}", endpoint.url);
    let fault = world.run(&format!("{words} --json")).is(3).fault("NOT_DELIVERED");
    assert!(fault["message"].as_str().unwrap().contains("HTTP 400"), "{fault}");
    assert_eq!(endpoint.text().lines().count(), 500);
    let done = world.json(&words);
    assert_eq!((&done["rejected"], &done["to"]), (&0.into(), &"ndjson".into()));
    is_complete(&endpoint.text(), 1200);
    assert_eq!(world.json(&words)["exported"], 0);
    let elsewhere = Endpoint::start(|_| Reply::Refuse(307, "Location: http://127.0.0.1:9/\r\n"));
    let words = format!("export --to ndjson --json --patience 30s --endpoint {}", elsewhere.url);
    let begun = Instant::now();
    world.run(&words).is(3).fault("NOT_DELIVERED");
    assert!(begun.elapsed() < Duration::from_secs(20), "a redirect is not tried again");
}

#[test]
fn a_receiver_that_takes_less_at_a_time_gets_less() {
    let world = world_with(1200, 500);
    let endpoint =
        Endpoint::start(
            |arrived| {
                if arrived.body.len() > 20_000 { Reply::Refuse(413, "") } else { Reply::Take }
            },
        );
    world.run(&format!("export --to ndjson --endpoint {}", endpoint.url)).is(0);
    assert_eq!(is_complete(&endpoint.text(), 1200), 1200);
    assert!(endpoint.taken().len() > 10);
    let narrow = Endpoint::start(|_| Reply::Refuse(413, ""));
    world.run(&format!("export --to ndjson --endpoint {} --json", narrow.url)).is(3).fault("NOT_DELIVERED");
}

#[test]
fn records_that_a_receiver_rejects_are_counted_and_not_sent_again() {
    let world = world_with(4, 100);
    let endpoint = Endpoint::start(|arrived| match arrived.path.as_str() {
        "/v1/logs" => {
            Reply::TakeAnd(r#"{"partialSuccess":{"rejectedLogRecords":"3","errorMessage":"too old"}}"#)
        }
        // A message without rejected records is a warning.
        _ => Reply::TakeAnd(r#"{"partialSuccess":{"rejectedSpans":"0","errorMessage":"use another field"}}"#),
    });
    let words = format!("export --to otlp --endpoint {}/", endpoint.url);
    let ran = world.run(&words).is(1);
    assert!(ran.stderr().contains("rejected 3 records: too old"), "{ran}");
    assert_eq!(
        endpoint.taken().iter().map(|arrived| arrived.path.clone()).collect::<Vec<_>>(),
        ["/v1/logs", "/v1/traces", "/v1/metrics"]
    );
    assert_eq!(world.json(&words)["exported"], 0);
}

#[test]
fn an_export_to_a_receiver_that_says_nothing_ends_with_its_patience() {
    let world = world_with(4, 100);
    let silent = Endpoint::start(|_| Reply::Hang);
    let begun = Instant::now();
    let words = format!("export --to ndjson --patience 1s --json --endpoint {}", silent.url);
    world.run(&words).is(3).fault("NOT_DELIVERED");
    assert!(begun.elapsed() < Duration::from_secs(20));
    // Nobody listens there.
    let words = "export --to ndjson --patience 500ms --json --endpoint http://127.0.0.1:9/";
    world.run(words).is(3).fault("NOT_DELIVERED");
}

#[test]
fn an_export_that_follows_waits_for_its_receiver_and_goes_on() {
    let world = world_with(4, 100);
    let mut refusals = 2;
    let endpoint = Endpoint::start(move |_| match refusals {
        0 => Reply::Take,
        _ => {
            refusals -= 1;
            Reply::Refuse(503, "")
        }
    });
    let words = ["export", "--to", "ndjson", "--follow", "--endpoint", &endpoint.url];
    let _process = world.tollgate(words).starts();
    until("the first lines", || (endpoint.text().lines().count() == 4).then_some(()));
    let begun = Instant::now();
    world.turn("blue");
    until("the new line", || (endpoint.text().lines().count() == 5).then_some(()));
    assert!(begun.elapsed() < PATIENCE / 2);
    is_complete(&endpoint.text(), 5);
    // The place is saved while the export waits.
    until("the saved place", || {
        let mut saved = fs::read_dir(world.path(".tollgate/exports")).unwrap();
        saved.any(|entry| fs::read_to_string(entry.unwrap().path()).unwrap().contains("\"5-")).then_some(())
    });
}

#[test]
fn headers_come_from_the_environment_and_addresses_with_a_login_are_refused() {
    let world = world_with(4, 100);
    let endpoint = answering(Vec::new());
    let export = |to: &str| {
        let run = world.tollgate(["export", "--to", to, "--endpoint", &endpoint.url]);
        let run = run.env("TOLLGATE_EXPORT_HEADERS", "Authorization=Bearer%20secret,x-one=1");
        run.env("OTEL_EXPORTER_OTLP_HEADERS", "x-two=2").ends().is(0);
        let last = endpoint.taken().pop().unwrap();
        assert_eq!((last.header("authorization"), last.header("x-one")), (Some("Bearer secret"), Some("1")));
        last.header("x-two").map(str::to_owned)
    };
    assert_eq!(export("otlp"), Some("2".into()));
    assert_eq!(export("cloudevents"), None);
    for bad in ["no-value", "=x", "a b=c", "a=%zz", "a=%0d%0ax: y"] {
        let run = world.tollgate(["export", "--to", "ndjson", "--json", "--endpoint", &endpoint.url]);
        run.env("TOLLGATE_EXPORT_HEADERS", bad).ends().is(2).fault("USAGE");
    }
    let fault =
        world.run("export --to ndjson --json --endpoint http://ada:secret@localhost/").is(2).fault("INVALID");
    assert!(fault["message"].as_str().unwrap().contains("TOLLGATE_EXPORT_HEADERS"), "{fault}");
}

/// A server with TLS that writes the bodies of requests to its output.
const TLS_SERVER: &str = "
import http.server, ssl, sys
class Take(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        sys.stdout.write(self.rfile.read(int(self.headers['content-length'])).decode())
        sys.stdout.flush()
        self.send_response(200)
        self.send_header('content-length', '0')
        self.end_headers()
    def log_message(self, *words): pass
server = http.server.HTTPServer(('127.0.0.1', 0), Take)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('cert.pem', 'key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
open('port.new', 'w').write(str(server.server_port))
import os; os.rename('port.new', 'port')
server.serve_forever()
";

#[test]
fn an_endpoint_with_tls_is_trusted_only_by_its_authority() {
    let world = world_with(700, 500);
    let made = Command::new("openssl")
        .args(
            "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=t".split(' '),
        )
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"])
        .current_dir(world.root())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let out = fs::File::create(world.path("out")).unwrap();
    let mut server = world.program("python3", ["-c", TLS_SERVER]);
    let server = Process(server.command.stdout(out).stderr(Stdio::null()).spawn().unwrap());
    let port = until("the server", || fs::read_to_string(world.path("port")).ok());
    let words = format!("export --to ndjson --patience 1s --endpoint https://127.0.0.1:{port}/");
    let fault = world.run(&format!("{words} --json")).is(3).fault("NOT_DELIVERED");
    assert!(fault["message"].as_str().unwrap().contains("certificate"), "{fault}");
    assert_eq!(fs::read_to_string(world.path("out")).unwrap(), "");
    world.run(&format!("{words} --ca cert.pem")).is(0);
    drop(server);
    is_complete(&fs::read_to_string(world.path("out")).unwrap(), 700);
}
