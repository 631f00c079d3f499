//! What others make of exports: OpenTelemetry's protobuf definitions, the CloudEvents SDK, and Prometheus' promtool.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::endpoint::{Arrived, Endpoint, Reply};
use crate::lines::world_with;
use crate::tools::{fed, peers};
use crate::world::{Process, World, until};

fn python(peers: &Path, script: &str, input: &str) -> Value {
    let output = fed(&peers.join("python/bin/python"), &["-c", script], input);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Parses each line as a request, strictly, sends it through the binary encoding, and prints it in protobuf's own JSON. Ids
/// are in hex in OTLP and in base64 in protobuf's JSON.
const DECODE: &str = "
import base64, json, sys
from google.protobuf.json_format import MessageToDict, ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
kinds = {'resourceLogs': ExportLogsServiceRequest, 'resourceSpans': ExportTraceServiceRequest, 'resourceMetrics': ExportMetricsServiceRequest}
sizes = {'traceId': 16, 'spanId': 8}
def recode(value, one, other):
    if isinstance(value, list): return [recode(item, one, other) for item in value]
    if not isinstance(value, dict): return value
    return {key: other(one(item, sizes[key])) if key in sizes else recode(item, one, other) for key, item in value.items()}
def from_hex(text, size):
    found = bytes.fromhex(text)
    assert len(found) == size, text
    return found
decoded = []
for line in sys.stdin:
    request = json.loads(line)
    kind = kinds[next(iter(request))]
    message = ParseDict(recode(request, from_hex, lambda found: base64.b64encode(found).decode()), kind(), ignore_unknown_fields=False)
    again = kind.FromString(message.SerializeToString())
    decoded.append(recode(MessageToDict(again), lambda text, size: base64.b64decode(text), lambda found: found.hex()))
print(json.dumps(decoded))
";

#[test]
fn opentelemetrys_own_definitions_decode_every_request_without_loss() {
    let Some(peers) = peers() else { return };
    let world = World::with("[vault]\nretry = []\n");
    world.run("init --vault").is(0);
    world.puts("a", "one\n");
    let turn = world.turn("blue");
    world.run(&format!("read a --turn {turn}")).is(0);
    world.puts("a", "two\n");
    world.tollgate(["write", "a", "--turn", &turn]).stdin("x").ends().is(1);
    world.run(&format!("read a --turn {turn}")).is(0);
    world.tollgate(["write", "a", "--turn", &turn]).stdin("three\n").ends().is(0);
    world.run(&format!("turn end --turn {turn}")).is(0);
    world.run("task add plants --agent ada").is(0);
    world.run("task add dog --agent ada").is(0);
    world.run("work --once --agent red -- true").is(0);
    world.tollgate(["work", "--once", "--agent", "red", "--", "false"]).ends();
    let endpoint = Endpoint::start(|_| Reply::Take);
    world.run(&format!("export --to otlp --endpoint {}", endpoint.url)).is(0);
    let sent: Vec<Value> = endpoint.taken().iter().map(Arrived::json).collect();
    let written = world.run("export --to otlp").is(0).stdout();
    let of_file: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(sent, of_file, "a file has the same requests, one per line");
    // Nothing is lost on the way through the binary encoding: names, types and ids are right. Enums have names there.
    let mut decoded = python(peers, DECODE, &written);
    let text = decoded.to_string();
    for (name, number) in [
        ("\"SEVERITY_NUMBER_INFO\"", "9"),
        ("\"SEVERITY_NUMBER_WARN\"", "13"),
        ("\"SPAN_KIND_INTERNAL\"", "1"),
        ("\"STATUS_CODE_OK\"", "1"),
        ("\"AGGREGATION_TEMPORALITY_CUMULATIVE\"", "2"),
    ] {
        assert!(text.contains(name), "{name}: {text}");
        decoded = serde_json::from_str(&decoded.to_string().replace(name, number)).unwrap();
    }
    assert_eq!(decoded, Value::Array(sent.clone()));

    let logs = sent[0].pointer("/resourceLogs/0/scopeLogs/0/logRecords").unwrap().as_array().unwrap().clone();
    let ledger = world.json("ledger tail -n 100");
    assert_eq!(logs.len(), ledger.as_array().unwrap().len());
    for (log, line) in logs.iter().zip(ledger.as_array().unwrap()) {
        let body: Value = serde_json::from_str(log["body"]["stringValue"].as_str().unwrap()).unwrap();
        assert_eq!(body, *line);
        let is_bad = ["MUTATION_CONFLICT"].contains(&line["action_type"].as_str().unwrap());
        assert!(!is_bad || log["severityText"] == "WARN", "{log}");
    }
    let spans = sent[1].pointer("/resourceSpans/0/scopeSpans/0/spans").unwrap().as_array().unwrap().clone();
    let names: Vec<_> =
        spans.iter().map(|span| (span["name"].as_str().unwrap(), &span["status"]["code"])).collect();
    assert_eq!(names[..3], [("turn", &json!(1)), ("claim", &json!(1)), ("claim", &json!(1))]);
    // The log records of a turn name its span.
    let of_turn = logs
        .iter()
        .filter(|log| log["spanId"] == spans[0]["spanId"] && log["traceId"] == spans[0]["traceId"]);
    assert_eq!(
        of_turn.count(),
        ledger.as_array().unwrap().iter().filter(|line| line["turn"] == turn.as_str()).count()
    );
    for span in &spans {
        let nanos = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
        assert!(nanos("startTimeUnixNano") <= nanos("endTimeUnixNano"), "{span}");
    }
}

/// Reads a batch with the SDK, and prints what it found.
const CLOUDEVENTS: &str = "
import json, sys
from cloudevents.http import from_dict
events = [from_dict(event) for event in json.load(sys.stdin)]
print(json.dumps([[event['id'], event['type'], event['source'], event['time'], event.data['seq']] for event in events]))
";

#[test]
fn the_cloudevents_sdk_reads_a_batch() {
    let Some(peers) = peers() else { return };
    let world = world_with(6, 100);
    let endpoint = Endpoint::start(|_| Reply::Take);
    world.run(&format!("export --to cloudevents --endpoint {}", endpoint.url)).is(0);
    let batch = endpoint.taken().pop().unwrap();
    assert_eq!(batch.header("content-type"), Some("application/cloudevents-batch+json; charset=UTF-8"));
    let read = python(peers, CLOUDEVENTS, &batch.body);
    let seqs: Vec<_> = read.as_array().unwrap().iter().map(|event| event[4].as_u64().unwrap()).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6]);
    assert_eq!(read[0][1], "tollgate.turn_started");
}

#[test]
fn promtool_has_no_complaint_about_the_metrics() {
    let Some(peers) = peers() else { return };
    let world = world_with(40, 100);
    world.run("init --vault").is(0);
    world.run("task add plants --agent ada").is(0);
    world.run("work --once --agent red -- true").is(0);
    let mut run = world.tollgate(["serve", "--listen", "127.0.0.1:0", "--json"]);
    run.command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut server = Process(run.command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    let address =
        said["url"].as_str().unwrap().strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
    let page = || {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    // Counters are left out until the ledger was read once.
    let page = until("the counters", || Some(page()).filter(|page| page.contains("_total")));
    let promtool = peers.join("prometheus/usr/bin/promtool");
    let check = |page: &str| {
        let output = fed(&promtool, &["check", "metrics"], page);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(check(&page), (Some(0), String::new()), "{page}");
    let (code, words) = check(
        &page.replace("# TYPE tollgate_ledger_last_seq gauge", "# TYPE tollgate_ledger_last_seq counter"),
    );
    assert!(code != Some(0) && words.contains("_total"), "promtool does complain: {words}");
}
