//! Random sequences of events, checked against a second, very simple implementation of the rules.

use std::collections::HashMap;

use proptest::prelude::*;
use tollgate::guard::{Expected, Outcome};
use tollgate::part::Part;

use crate::world::World;

#[derive(Debug, Clone)]
enum Event {
    Read(usize, usize),
    Write(usize, usize, u8),
    Delete(usize, usize),
    OutsiderWrites(usize, u8),
    OutsiderRemoves(usize),
    Sweep,
    Reopen,
}

const AGENTS: usize = 3;
const FILES: usize = 2;

fn event() -> impl Strategy<Value = Event> {
    let (agent, file, text) = (0..AGENTS, 0..FILES, 0..4u8);
    prop_oneof![
        4 => (agent.clone(), file.clone()).prop_map(|(agent, file)| Event::Read(agent, file)),
        6 => (agent.clone(), file.clone(), text.clone()).prop_map(|(agent, file, text)| Event::Write(agent, file, text)),
        1 => (agent, file.clone()).prop_map(|(agent, file)| Event::Delete(agent, file)),
        3 => (file.clone(), text).prop_map(|(file, text)| Event::OutsiderWrites(file, text)),
        1 => file.prop_map(Event::OutsiderRemoves),
        1 => Just(Event::Sweep),
        1 => Just(Event::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_gate_follows_the_rules(events in prop::collection::vec(event(), 1..40)) {
        let world = World::with("[guard]\ngrace = \"0ms\"");
        let agents: Vec<_> = (0..AGENTS).map(|agent| world.agent(&format!("a{agent}"))).collect();
        let mut disk: HashMap<usize, u8> = HashMap::new();
        let mut knows: HashMap<(usize, usize), Option<u8>> = HashMap::new();
        let name = |file: usize| format!("f{file}");
        for event in events {
            match event {
                Event::Read(agent, file) => {
                    let read = world.gate.read(&agents[agent].turn, name(file), Part::Whole);
                    let bytes = match read {
                        Ok(Outcome::Done(read)) => Some(read.bytes[0]),
                        Ok(Outcome::Refused(refused)) => panic!("{refused:?}"),
                        Err(_) => None,
                    };
                    prop_assert_eq!(bytes, disk.get(&file).copied());
                    knows.insert((agent, file), bytes);
                }
                Event::Write(agent, file, text) => {
                    let allowed = knows.get(&(agent, file)).is_none_or(|known| *known == disk.get(&file).copied());
                    let outcome = world.gate.write(&agents[agent].turn, name(file), vec![text], Expected::Baseline).unwrap();
                    prop_assert_eq!(matches!(outcome, Outcome::Done(_)), allowed);
                    if allowed {
                        disk.insert(file, text);
                        knows.insert((agent, file), Some(text));
                    }
                }
                Event::Delete(agent, file) => {
                    let known = knows.get(&(agent, file)).copied();
                    let here = disk.get(&file).copied();
                    match world.gate.delete(&agents[agent].turn, name(file), Expected::Baseline) {
                        Ok(Outcome::Done(_)) => {
                            prop_assert!(here.is_some() && known.is_none_or(|known| known == here));
                            disk.remove(&file);
                            knows.insert((agent, file), None);
                        }
                        Ok(Outcome::Refused(_)) => prop_assert!(known.is_some_and(|known| known != here)),
                        Err(_) => prop_assert!(here.is_none() && known.is_none_or(|known| known.is_none())),
                    }
                }
                Event::OutsiderWrites(file, text) => {
                    world.outsider_writes(&name(file), [text]);
                    disk.insert(file, text);
                }
                Event::OutsiderRemoves(file) => {
                    if disk.remove(&file).is_some() {
                        world.outsider_removes(&name(file));
                    }
                }
                Event::Sweep => drop(world.gate.workspace().sweep().unwrap()),
                Event::Reopen => drop(crate::world::open(&world.root(), Default::default())),
            }
            for file in 0..FILES {
                let bytes = std::fs::read(world.root().join(name(file))).ok().map(|bytes| bytes[0]);
                prop_assert_eq!(bytes, disk.get(&file).copied());
            }
        }
        prop_assert!(world.gate.workspace().ledger().verify().unwrap().problem.is_none());
    }
}
