//! `tollgate export`: the ledger for other systems.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use serde_json::json;
use tollgate::digest::Digest;
use tollgate::error::{At, Fault, MissingKind};
use tollgate::ledger::Ledger;
use tollgate::settings::{StoreChoice, Wait};
use tollgate::tasks::workspace_id;
use tollgate::visible::plain;
use tollgate::visible::plain_json;
use tollgate::workspace::Workspace;
use tollgate_export::{
    EventSource, ExportFormat, ExportKey, ExportOrigin, ExportStep, ExportTarget, Exporter, FORMATS,
    FileTexts, FirstEvent, LedgerSource, NoTexts, OTLP, OutFile, Receiver, ReceiverOptions, SavedExport,
    VaultSource,
};

use super::moment::{FORMS, moment};
use crate::answer::{Answer, Form, Reply};
use crate::error::CliError;
use crate::invocation::Invocation;
use crate::ledger_watch::{LedgerWatch, reader_is_gone};
use crate::output;
use crate::words;

/// Export the ledger to other systems: NDJSON, CloudEvents, OpenTelemetry, Agent Trace
///
/// Every event is exported at least once and in order, and has the same id each time. With --out or --endpoint, tollgate saves
/// how far the export has come, and the next export to the same destination continues there. Without them, the events go to
/// stdout and nothing is saved.
///
/// For otlp, --endpoint is the base address of the receiver, to which `/v1/logs`, `/v1/traces` and `/v1/metrics` are added.
/// Headers for a login come from TOLLGATE_EXPORT_HEADERS, and for otlp also from OTEL_EXPORTER_OTLP_HEADERS, as
/// `name=value,name=value`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example
  tollgate export --to ndjson --since yesterday | jq .action_type
  tollgate export --to cloudevents --out events.jsonl
  tollgate export --to otlp --endpoint http://localhost:4318 --follow")]
pub(crate) struct ExportArgs {
    /// The format
    #[arg(long, value_parser = format_parser(), value_name = "FORMAT")]
    to: &'static ExportFormat,
    /// Append to this file
    #[arg(long, value_name = "FILE", conflicts_with = "endpoint", value_hint = clap::ValueHint::FilePath)]
    out: Option<PathBuf>,
    /// Send to this HTTP address
    #[arg(long, value_name = "URL", value_hint = clap::ValueHint::Url)]
    endpoint: Option<String>,
    /// Keep running and export new events
    #[arg(short, long)]
    follow: bool,
    /// The first event: a line number, or a time such as `yesterday` or `2h` [default: after the last export to this destination, else the first line]
    #[arg(long, value_name = "SEQ|TIME")]
    since: Option<String>,
    /// Export the events of the vault's own ledger, from all machines that share it, instead of the workspace's
    #[arg(long)]
    vault: bool,
    /// Certificates of the authorities to trust for https, in PEM [default: SSL_CERT_FILE, else those of the system]
    #[arg(long, value_name = "FILE", requires = "endpoint", value_hint = clap::ValueHint::FilePath)]
    ca: Option<PathBuf>,
    /// How long to retry if the endpoint does not accept events [default: 1m; with --follow, forever]
    #[arg(long, value_name = "TIME", requires = "endpoint")]
    patience: Option<Wait>,
}

/// Reads the name of a format.
fn format_parser() -> impl TypedValueParser<Value = &'static ExportFormat> {
    let names = FORMATS.map(|format| PossibleValue::new(format.name).help(format.about));
    let find = |name: String| FORMATS.into_iter().find(|format| format.name == name);
    PossibleValuesParser::new(names).try_map(move |name| find(name).ok_or("no such format"))
}

/// How long an endpoint that takes nothing is asked again, unless the export follows the ledger.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(invocation: &Invocation, args: &ExportArgs) -> Result<Answer, CliError> {
    let since = args.since.as_deref().map(|text| parse_since(text, invocation.now())).transpose()?;
    let ledger = invocation.ledger()?;
    if args.out.is_some() || args.endpoint.is_some() {
        check_state(&ledger)?;
    }
    let (target, destination) = target(invocation, args, &ledger)?;
    let (source, uri) = source(invocation, args, &ledger)?;
    let format = args.to;
    let saved = match &destination {
        None => None,
        Some(destination) => Some(save_place(&ledger, args, destination)?),
    };
    let (root, _) = invocation.root()?;
    let origin = ExportOrigin {
        uri,
        version: env!("CARGO_PKG_VERSION"),
        folder: folder_in_repository(&root),
        user: invocation.person(),
    };
    let texts: Box<dyn FileTexts> = match format.reads_texts && invocation.has_state()? {
        true => Box::new(KeptTexts(invocation.workspace()?)),
        false => Box::new(NoTexts),
    };
    let mut exporter = Exporter::new(source, (format, origin, texts), target, saved, since)?;
    let mut watch = args.follow.then(|| LedgerWatch::new(&ledger));
    let is_told = args.follow || invocation.form() == Form::Words;
    let mut tell = |notice: &_| {
        if is_told {
            output::tell(&words::export_notice(notice));
        }
    };
    loop {
        let step = exporter.advance(&mut tell)?;
        match (step, &mut watch) {
            (ExportStep::Further, _) => {}
            (ExportStep::ToTheEnd, None) => break,
            (ExportStep::ToTheEnd, Some(watch)) => {
                watch.wait();
                if destination.is_none() && reader_is_gone() {
                    return Err(CliError::Hangup);
                }
            }
        }
    }
    exporter.save()?;
    let Some(destination) = destination else { return Ok(Answer::Streamed) };
    let (exported, rejected) = (exporter.exported(), exporter.rejected());
    let said = Reply::new(
        words::exported(exported, rejected, &destination),
        json!({
            "to": format.name,
            "destination": destination,
            "exported": exported,
            "rejected": rejected,
        }),
    );
    Ok(if rejected == 0 { Answer::Done(said) } else { Answer::NotValid(said) })
}

fn parse_since(text: &str, now: Timestamp) -> Result<FirstEvent, CliError> {
    if let Ok(seq) = text.parse() {
        return Ok(FirstEvent::Seq(seq));
    }
    moment(text, now).map(FirstEvent::Time).map_err(|_| {
        CliError::usage(
            format!("`{}` is neither a line number nor a time", plain(text)),
            format!("give a `seq` of the ledger, or a time: {FORMS}"),
        )
    })
}

/// The target, and its name. Stdout has none.
fn target(
    invocation: &Invocation,
    args: &ExportArgs,
    ledger: &Ledger,
) -> Result<(ExportTarget, Option<String>), CliError> {
    if let Some(endpoint) = &args.endpoint {
        let patience = args.patience.map(|wait| wait.0);
        let options = ReceiverOptions {
            headers: headers(invocation, args.to)?,
            authorities: args.ca.clone().or_else(|| invocation.surroundings().export.authorities.clone()),
            patience: patience.or((!args.follow).then_some(PATIENCE)),
        };
        return Ok((ExportTarget::Http(Receiver::new(endpoint, options)?), Some(endpoint.clone())));
    }
    let Some(out) = &args.out else {
        let stdout = io::stdout();
        let stream: Box<dyn Write> = match stdout.is_terminal() {
            true => Box::new(VisibleLines(stdout.lock())),
            false => Box::new(stdout.lock()),
        };
        return Ok((ExportTarget::Stream(stream), None));
    };
    let path = invocation.path(out)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let name =
        path.file_name().ok_or_else(|| Fault::invalid(format!("`{}` is not a file", path.display())))?;
    // The same file has the same place, whichever way it is named.
    let path = fs::canonicalize(folder).at("open the folder", folder)?.join(name);
    let path = fs::canonicalize(&path).unwrap_or(path);
    let state = ledger.path().parent().and_then(|state| fs::canonicalize(state).ok());
    if state.is_some_and(|state| path.starts_with(state)) {
        return Err(CliError::usage(
            "`--out` is in tollgate's own folder",
            "choose a file outside of `.tollgate`",
        ));
    }
    let file = OutFile::open(&path)?;
    Ok((ExportTarget::File(file), Some(path.to_string_lossy().into_owned())))
}

/// Lines of JSON for a terminal: the same meaning, with every character visible. Names in the ledger come from others, and a
/// terminal would act on control characters in them. Each write has whole lines.
struct VisibleLines<W>(W);

impl<W: Write> Write for VisibleLines<W> {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        for line in String::from_utf8_lossy(lines).lines() {
            writeln!(self.0, "{}", plain_json(line))?;
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The headers in the environment: `name=value,name=value`, with escapes as in a URL.
fn headers(invocation: &Invocation, format: &ExportFormat) -> Result<Vec<(String, String)>, CliError> {
    let variables = &invocation.surroundings().export;
    let of_otlp = variables.otlp_headers.as_deref().filter(|_| format.name == OTLP.name);
    let mut headers = Vec::new();
    for (variable, text) in
        [("TOLLGATE_EXPORT_HEADERS", variables.headers.as_deref()), ("OTEL_EXPORTER_OTLP_HEADERS", of_otlp)]
    {
        for pair in text.unwrap_or_default().split(',').filter(|pair| !pair.trim().is_empty()) {
            let parsed = pair.split_once('=').and_then(|(name, value)| {
                let name = name.trim();
                let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
                (!name.is_empty() && name.chars().all(is_token)).then_some(())?;
                let value = unescaped(value.trim())?;
                value.chars().all(|c| c == ' ' || c.is_ascii_graphic()).then(|| (name.to_owned(), value))
            });
            headers.push(parsed.ok_or_else(|| {
                CliError::usage(
                    format!("`{variable}` is not a list of headers"),
                    "write it as `name=value,name=value`, with special characters as `%20`",
                )
            })?);
        }
    }
    Ok(headers)
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let mut digit =
                    || char::from(rest.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                bytes.push(digit()? << 4 | digit()?);
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

/// The events, and the identifier of their ledger.
fn source(
    invocation: &Invocation,
    args: &ExportArgs,
    ledger: &Ledger,
) -> Result<(Box<dyn EventSource>, String), CliError> {
    if !args.vault {
        let id = workspace_id(&invocation.root()?.0)?;
        return Ok((Box::new(LedgerSource::new(ledger.clone())), format!("urn:tollgate:workspace:{id}")));
    }
    let tasks = invocation.fresh_tasks()?;
    // The machines that share an engine know it by the same address, and their workspaces have different ids.
    let id = match tasks.home.settings.vault.chosen_store() {
        StoreChoice::Engine(url) => Digest::of(url.as_bytes()).to_string()[..16].to_owned(),
        StoreChoice::Folder | StoreChoice::Git => workspace_id(&tasks.home.root)?,
    };
    Ok((Box::new(VaultSource::new(tasks.vault.clone())), format!("urn:tollgate:vault:{id}")))
}

/// A place can only be saved where tollgate has state.
fn check_state(ledger: &Ledger) -> Result<(), Fault> {
    match ledger.path().parent() {
        Some(state) if !state.is_dir() => {
            Err(Fault::missing(MissingKind::Path, format!("tollgate's state in `{}`", state.display())))
        }
        _ => Ok(()),
    }
}

/// The saved place of this export, in the state of the workspace.
fn save_place(ledger: &Ledger, args: &ExportArgs, destination: &str) -> Result<SavedExport, CliError> {
    let state = ledger.path().parent().unwrap_or(Path::new("/"));
    let key = ExportKey {
        format: args.to,
        of: if args.vault { "vault" } else { "ledger" },
        destination: destination.to_owned(),
    };
    Ok(SavedExport::open(&state.join("exports"), key)?)
}

/// Where the workspace is in its repository: Agent Trace names files from the root of the repository.
fn folder_in_repository(root: &Path) -> String {
    let repository = root.ancestors().find(|folder| folder.join(".git").exists());
    let folder = repository.and_then(|repository| root.strip_prefix(repository).ok());
    folder.map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Larger texts are not compared line by line.
const LARGEST: u64 = 4 << 20;

/// The texts of files on disk, and those that are kept.
struct KeptTexts(Workspace);

impl KeptTexts {
    fn on_disk(&self, path: &str) -> Option<Vec<u8>> {
        let path = self.0.path().join(path);
        let found = path.symlink_metadata().ok()?;
        (found.is_file() && found.len() <= LARGEST).then(|| fs::read(&path).ok()).flatten()
    }
}

impl FileTexts for KeptTexts {
    fn text(&self, path: &str, hash: Digest) -> Option<Vec<u8>> {
        let is_it = |bytes: &Vec<u8>| Digest::of(bytes) == hash;
        let kept = || self.0.content(hash).ok()?.bytes().filter(|bytes| bytes.len() as u64 <= LARGEST);
        self.on_disk(path).filter(is_it).or_else(kept)
    }
}
