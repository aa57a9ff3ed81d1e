//! An event as code outside of workflows sends it, to an embedded system or to a fleet.

/// Which event to send.
#[derive(Clone, Copy, Debug)]
pub struct SendEvent<'a> {
    kind: &'a str,
    key: Option<&'a str>,
    id: Option<&'a str>,
}

impl<'a> SendEvent<'a> {
    /// An event of this type.
    #[must_use]
    pub const fn new(kind: &'a str) -> Self {
        Self { kind, key: None, id: None }
    }

    /// With a correlation key.
    #[must_use]
    pub const fn key(mut self, key: &'a str) -> Self {
        self.key = Some(key);
        self
    }

    /// With an id of its own, by which a repetition is known.
    #[must_use]
    pub const fn id(mut self, id: &'a str) -> Self {
        self.id = Some(id);
        self
    }

    /// Its type.
    #[must_use]
    pub const fn kind(&self) -> &'a str {
        self.kind
    }

    /// The correlation key, if it was given one.
    #[must_use]
    pub const fn correlation_key(&self) -> Option<&'a str> {
        self.key
    }

    /// The id, if it was given one.
    #[must_use]
    pub const fn event_id(&self) -> Option<&'a str> {
        self.id
    }
}
