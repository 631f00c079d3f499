//! A real browser, driven by WebDriver. That protocol is JSON over HTTP and needs no library.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::world::World;

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a browser needs to run without a screen, even as root and in a container.
const ARGUMENTS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
];

/// The Enter key in WebDriver.
pub(crate) const ENTER: &str = "\u{e007}";

pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    origin: String,
    _profile: tempfile::TempDir,
}

/// The size and the colour scheme of the window.
#[derive(Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) scheme: &'static str,
}

pub(crate) const DESKTOP: Screen = Screen { width: 1280, height: 800, scheme: "light" };
pub(crate) const PHONE: Screen = Screen { width: 360, height: 740, scheme: "light" };

impl Browser {
    pub(crate) fn start() -> Result<Self, String> {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("chromedriver cannot be run: {error}"))?;
        let output = driver.stdout.take().ok_or("chromedriver has no output")?;
        // "ChromeDriver was started successfully on port 12345."
        let port = BufReader::new(output).lines().map_while(Result::ok).find_map(|line| {
            line.rsplit_once("on port ")?
                .1
                .trim_end_matches('.')
                .parse()
                .ok()
                .filter(|_| line.contains("success"))
        });
        let profile = tempfile::tempdir().map_err(|error| error.to_string())?;
        let Some(port) = port else {
            let _ = driver.kill();
            let _ = driver.wait();
            return Err("chromedriver did not start".into());
        };
        let mut browser =
            Self { driver, port, session: String::new(), origin: String::new(), _profile: profile };
        let mut arguments: Vec<String> = ARGUMENTS.map(str::to_owned).into();
        arguments.push(format!("--user-data-dir={}", browser._profile.path().display()));
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
            "unhandledPromptBehavior": "ignore",
        }}});
        let session = browser.send("POST", "/session", &wanted)?;
        browser.session = format!("/session/{}", session["sessionId"].as_str().ok_or("no session")?);
        Ok(browser)
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let failed = |error: std::io::Error| format!("chromedriver does not answer: {error}");
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE * 4)).map_err(failed)?;
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).map_err(failed)?;
        // Read exactly the content length, because chromedriver may keep the connection open.
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).map_err(failed)?;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut bytes = vec![0; length];
        reader.read_exact(&mut bytes).map_err(failed)?;
        let mut answer: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        match answer["value"]["error"].as_str() {
            Some(error) => Err(format!("{error}: {}", answer["value"]["message"])),
            None => Ok(answer["value"].take()),
        }
    }

    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let path = format!("{}{path}", self.session);
        self.send(method, &path, &body).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Sends a command of the DevTools protocol.
    fn command(&self, command: &str, parameters: Value) {
        self.ask("POST", "/goog/cdp/execute", json!({"cmd": command, "params": parameters}));
    }

    pub(crate) fn looks_like(&self, screen: Screen) {
        let Screen { width, height, scheme } = screen;
        self.command(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}),
        );
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.command("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Opens a page by an address with the secret, as the server prints it, and waits until it is live.
    #[track_caller]
    pub(crate) fn opens(&mut self, world: &World, path: &str) {
        self.origin = format!("http://{}", world.address);
        self.ask("POST", "/url", json!({"url": format!("{}{}", self.origin, world.with_secret(path))}));
        // A page that does not update itself is never live.
        self.until(
            "'still' in document.body.dataset || document.getElementById('live')?.textContent === 'live'",
        );
    }

    /// Goes to another page of the same server.
    #[track_caller]
    pub(crate) fn goes_to(&self, path: &str) {
        self.ask("POST", "/url", json!({"url": format!("{}{path}", self.origin)}));
    }

    /// Opens a page without the secret and without a cookie.
    #[track_caller]
    pub(crate) fn visits_as_a_stranger(&mut self, world: &World, path: &str) {
        self.origin = format!("http://{}", world.address);
        self.command("Network.clearBrowserCookies", json!({}));
        self.goes_to(path);
    }

    /// Decides what the browser asks a person when a page wants to show notifications.
    pub(crate) fn permits_notifications(&self, world: &World, setting: &str) {
        let origin = format!("http://{}", world.address);
        let permission = json!({"name": "notifications"});
        self.command(
            "Browser.setPermission",
            json!({"permission": permission, "setting": setting, "origin": origin}),
        );
    }

    /// Presses a key while another is held down.
    pub(crate) fn chord(&self, held: char, key: char) {
        let actions = json!([
            {"type": "keyDown", "value": held}, {"type": "keyDown", "value": key},
            {"type": "keyUp", "value": key}, {"type": "keyUp", "value": held},
        ]);
        self.ask(
            "POST",
            "/actions",
            json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}),
        );
    }

    /// Runs a script in the page and returns its result.
    #[track_caller]
    pub(crate) fn script(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", json!({"script": script, "args": []}))
    }

    /// Runs an asynchronous script in the page, which passes its result to its last argument.
    #[track_caller]
    pub(crate) fn later(&self, script: &str) -> Value {
        self.ask("POST", "/execute/async", json!({"script": script, "args": []}))
    }

    /// Waits until a script's expression is true.
    #[track_caller]
    pub(crate) fn until(&self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        let body = json!({"script": format!("return Boolean({expression})"), "args": []});
        // While the browser loads a page, no script can run.
        while self.send("POST", &format!("{}/execute/sync", self.session), &body) != Ok(json!(true)) {
            assert!(Instant::now() < deadline, "never true: {expression}\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the page shows this text.
    #[track_caller]
    pub(crate) fn shows(&self, text: &str) {
        self.until(&format!("document.querySelector('main').innerText.includes({})", json!(text)));
    }

    /// The visible text of the page.
    pub(crate) fn text(&self) -> String {
        let body = json!({"script": "return document.body.innerText", "args": []});
        let text = self.send("POST", &format!("{}/execute/sync", self.session), &body);
        text.map_or_else(|error| error, |text| text.as_str().unwrap_or_default().to_owned())
    }

    #[track_caller]
    fn element(&self, css: &str) -> String {
        let found = self.ask("POST", "/element", json!({"using": "css selector", "value": css}));
        let id = found.as_object().and_then(|found| found.values().next()).and_then(Value::as_str);
        id.unwrap_or_else(|| panic!("{css}: {found}")).to_owned()
    }

    /// Clicks an element with the mouse.
    #[track_caller]
    pub(crate) fn clicks(&self, css: &str) {
        let element = self.element(css);
        self.ask("POST", &format!("/element/{element}/click"), json!({}));
    }

    /// Types text into a field, after its current text.
    #[track_caller]
    pub(crate) fn types(&self, css: &str, text: &str) {
        let element = self.element(css);
        self.ask("POST", &format!("/element/{element}/value"), json!({"text": text}));
    }

    /// Sends key presses to the focused element.
    pub(crate) fn presses(&self, keys: &str) {
        let press =
            |key: char| [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})];
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": actions});
        self.ask("POST", "/actions", json!({"actions": [keyboard]}));
    }

    /// The errors in the browser's log: failed scripts, and loads that the policy blocked.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.ask("POST", "/se/log", json!({"type": "browser"}));
        let entries = log.as_array().into_iter().flatten();
        entries.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Whether a script has opened a dialog.
    pub(crate) fn has_dialog(&self) -> bool {
        self.send("GET", &format!("{}/alert/text", self.session), &Value::Null).is_ok()
    }

    /// What the window shows, as PNG.
    pub(crate) fn picture(&self) -> Vec<u8> {
        let png = self.ask("GET", "/screenshot", Value::Null);
        base64::engine::general_purpose::STANDARD.decode(png.as_str().unwrap()).unwrap()
    }

    /// The number of pixels by which the page is wider than the window.
    pub(crate) fn overflow(&self) -> i64 {
        let script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        self.script(script).as_i64().unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.send("DELETE", &self.session, &Value::Null);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
