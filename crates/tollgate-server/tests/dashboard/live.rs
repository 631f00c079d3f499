//! An open page updates itself, and costs nothing while nothing happens.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::world::{World, encode};

/// The event stream of one page, as a browser reads it.
struct Events(BufReader<TcpStream>);

/// One event.
#[derive(Debug)]
struct Event {
    id: String,
    data: String,
}

impl Events {
    fn of(world: &World, page: &str, seen: &str, last: Option<&str>) -> Self {
        let mut stream = TcpStream::connect(world.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let last = last.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let path = format!("/events?page={}&seen={seen}", encode(page));
        let (host, cookie) = (world.address, &world.cookie);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n{last}\r\n").unwrap();
        let mut events = Self(BufReader::new(stream));
        assert!(events.line().starts_with("HTTP/1.1 200"), "{page}");
        while !events.line().is_empty() {}
        events
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
        line.trim_end().to_owned()
    }

    fn next(&mut self) -> Event {
        let mut event = Event { id: String::new(), data: String::new() };
        loop {
            let line = self.line();
            if let Some(id) = line.strip_prefix("id: ") {
                event.id = id.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                event.data.push_str(data);
            } else if line.is_empty() && !event.data.is_empty() {
                return event;
            }
        }
    }

    /// Whether nothing has arrived so far and nothing arrives within this time.
    fn is_silent(&mut self, time: Duration) -> bool {
        self.0.get_ref().set_read_timeout(Some(time)).unwrap();
        let mut line = String::new();
        let silent = self.0.read_line(&mut line).is_err();
        self.0.get_ref().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        silent
    }
}

fn seen(page: &str) -> String {
    let (_, rest) = page.split_once("data-seen=\"").unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

#[test]
fn a_page_gets_only_what_has_changed() {
    let world = World::new();
    world.add("first", "please");
    // The server may still be reading the ledger when the first page is shown.
    let mut tries = 0;
    let (page, mut events) = loop {
        let page = seen(&world.gets("/board").body);
        let mut events = Events::of(&world, "/board", &page, None);
        if events.is_silent(Duration::from_millis(700)) {
            break (page, events);
        }
        tries += 1;
        assert!(tries < 5, "the browser has the current version");
    };
    world.add("second", "please");
    let event = events.next();
    assert!(event.data.contains("second") && event.data.contains("id=\"main\""), "{}", event.data);
    assert_eq!(event.id, seen(&world.gets("/board").body), "an event carries the same parts as the page");
    // After a reconnect, missed changes arrive at once, and known ones do not arrive again.
    drop(events);
    let mut same = Events::of(&world, "/board", &page, Some(&event.id));
    assert!(same.is_silent(Duration::from_millis(700)), "the browser has the current version");
    world.add("third", "please");
    let mut back = Events::of(&world, "/board", &page, Some(&event.id));
    assert!(back.next().data.contains("third"));
}

#[test]
fn every_page_is_live() {
    let world = World::new();
    let pages = [
        "/",
        "/board",
        "/approvals",
        "/agents",
        "/agents/red",
        "/conflicts",
        "/changes",
        "/files?path=app.conf",
        "/ledger",
        "/tasks?state=Needs_Action",
    ];
    let mut streams = Vec::new();
    for page in pages {
        let seen = seen(&world.gets(page).body);
        streams.push((page, Events::of(&world, page, &seen, None)));
    }
    world.drafted("x", "ten coins");
    world.conflict("app.conf");
    world.add("fresh", "please");
    for (page, events) in &mut streams {
        let wanted = match *page {
            "/approvals" => "ten coins",
            "/conflicts" => "class=\"add\">two",
            "/agents" | "/files?path=app.conf" => "red",
            "/" | "/changes" | "/agents/red" => "app.conf",
            "/ledger" => "was refused",
            _ => "fresh",
        };
        while !events.next().data.contains(wanted) {}
    }
}

/// The server asks git for it at most every two seconds, and the page shows it all the same when nothing else happens.
#[test]
fn a_figure_that_is_reused_for_a_while_is_shown_when_it_is_known() {
    let world = World::new();
    world.is_a_repository();
    assert!(world.agent("blue").writes("a", "one\n"));
    let page = world.hears("/", "blue</a> <span class=\"quiet\">1 file</span>");
    let mut events = Events::of(&world, "/", &seen(&page.body), None);
    // The first is shown with the old figure.
    assert!(world.agent("blue").writes("b", "two\n"));
    while !events.next().data.contains("blue</a> <span class=\"quiet\">2 files</span>") {}
}

#[test]
fn the_page_updates_once_the_folder_is_set_up() {
    let world = World::bare();
    let page = world.gets("/");
    page.has("not set up");
    let mut events = Events::of(&world, "/", &seen(&page.body), None);
    world.vault();
    while !events.next().data.contains("No tasks yet") {}
}

#[test]
fn open_pages_do_not_keep_the_server_from_stopping() {
    let mut world = World::new();
    let page = seen(&world.gets("/").body);
    let mut events = Events::of(&world, "/", &page, None);
    let begun = std::time::Instant::now();
    world.restart();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    // The last chunk of the response is empty.
    assert_eq!(events.line(), "0");
}
