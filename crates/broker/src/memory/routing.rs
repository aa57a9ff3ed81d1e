//! Topic exchanges: which queues a routing key reaches.

use std::collections::HashMap;

/// Bindings of all exchanges.
#[derive(Default)]
pub(super) struct Exchanges {
    by_name: HashMap<String, Vec<Binding>>,
}

struct Binding {
    pattern: String,
    queue: String,
}

impl Exchanges {
    pub(super) fn declare(&mut self, name: String) {
        self.by_name.entry(name).or_default();
    }

    /// False if there is no such exchange.
    pub(super) fn bind(&mut self, exchange: &str, pattern: &str, queue: &str) -> bool {
        let Some(bindings) = self.by_name.get_mut(exchange) else { return false };
        if !bindings.iter().any(|binding| binding.pattern == pattern && binding.queue == queue) {
            bindings.push(Binding { pattern: pattern.to_owned(), queue: queue.to_owned() });
        }
        true
    }

    pub(super) fn unbind_queue(&mut self, queue: &str) {
        for bindings in self.by_name.values_mut() {
            bindings.retain(|binding| binding.queue != queue);
        }
    }

    /// The queues, each once; `None` if there is no such exchange.
    pub(super) fn route(&self, exchange: &str, key: &str) -> Option<Vec<String>> {
        let mut queues: Vec<String> = self
            .by_name
            .get(exchange)?
            .iter()
            .filter(|binding| matches(&binding.pattern, key))
            .map(|binding| binding.queue.clone())
            .collect();
        queues.sort_unstable();
        queues.dedup();
        Some(queues)
    }
}

/// Whether a topic pattern matches a key: `*` is one word, `#` any number of words, none included.
fn matches(pattern: &str, key: &str) -> bool {
    if !pattern.contains(['*', '#']) {
        return pattern == key;
    }
    let pattern: Vec<&str> = pattern.split('.').collect();
    let key: Vec<&str> = key.split('.').collect();
    words_match(&pattern, &key)
}

fn words_match(pattern: &[&str], key: &[&str]) -> bool {
    match (pattern.split_first(), key.split_first()) {
        (None, None) => true,
        (Some((&"#", rest)), _) => (0..=key.len()).any(|skipped| words_match(rest, &key[skipped..])),
        (None, Some(_)) | (Some(_), None) => false,
        (Some((word, pattern)), Some((key_word, key))) => {
            (*word == "*" || word == key_word) && words_match(pattern, key)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn topic_patterns() {
        for (pattern, key, expected) in [
            ("orders", "orders", true),
            ("orders", "orders.eu", false),
            ("orders.*", "orders.eu", true),
            ("orders.*", "orders", false),
            ("orders.*", "orders.eu.west", false),
            ("orders.#", "orders", true),
            ("orders.#", "orders.eu.west", true),
            ("#", "anything.at.all", true),
            ("#.west", "orders.eu.west", true),
            ("#.west", "orders.eu.east", false),
            ("*.*.west", "orders.eu.west", true),
        ] {
            assert_eq!(matches(pattern, key), expected, "{pattern} against {key}");
        }
    }
}
