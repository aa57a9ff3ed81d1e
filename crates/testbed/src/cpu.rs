//! CPU and memory of processes, from `/proc`.

use std::fs;

/// Clock ticks a second, as Linux reports them to every process.
const TICKS: f64 = 100.0;

struct Stat {
    pid: u32,
    parent: u32,
    name: String,
    own: f64,
    children: f64,
}

/// CPU seconds that a process has used.
#[must_use]
pub fn cpu_of(pid: u32) -> f64 {
    read(pid).map_or(0.0, |stat| stat.own)
}

/// CPU seconds of all processes of this name (`postgres`, `beam.smp`), with those of their children that have ended.
#[must_use]
pub fn cpu_of_servers(name: &str) -> f64 {
    let all: Vec<_> = pids().into_iter().filter_map(read).filter(|stat| stat.name == name).collect();
    all.iter()
        .map(|stat| {
            // A parent's account of ended children counts once, at the root of the tree.
            let is_root = !all.iter().any(|other| other.pid == stat.parent);
            stat.own + if is_root { stat.children } else { 0.0 }
        })
        .sum()
}

/// Resident memory of a process in MiB.
#[must_use]
pub fn rss_mb(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    let kilobytes = line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok());
    kilobytes.unwrap_or_default() / 1024.0
}

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn read(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = text.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    // After the name: state, ppid, ... utime is the 14th field of the line, here the 12th.
    Some(Stat {
        pid,
        parent: number(1) as u32,
        name,
        own: (number(11) + number(12)) / TICKS,
        children: (number(13) + number(14)) / TICKS,
    })
}
