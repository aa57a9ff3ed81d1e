//! What a workflow shows of itself: a state, and attributes that it can be found by (rule P37).

use std::collections::BTreeMap;

use everstep_protocol::{
    Attribute, AttributeName, AttributeValue, FailureKind, Payload,
    attribute::{ATTRIBUTES_MAX, AttributeError},
    limits::STATE_BYTES,
};
use serde::Serialize;

use crate::Error;

/// What a body has published and set, and which of it was not told yet.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) attributes: BTreeMap<AttributeName, AttributeValue>,
    /// The state, if it is another than the one told last.
    pub(crate) state: Option<Payload>,
    /// Attributes that were set or removed.
    pub(crate) changed: BTreeMap<AttributeName, Option<AttributeValue>>,
}

/// A state as it is published.
pub(crate) fn shown_state(state: &impl Serialize) -> Result<Payload, Error> {
    let state = Payload::encode(state).map_err(|error| {
        Error::permanent(format!("publishing the state: {error}")).of_kind(FailureKind::Unserialisable)
    })?;
    if state.len() > STATE_BYTES {
        let bytes = state.len();
        let message = format!("the published state is {bytes} bytes of JSON, the limit is {STATE_BYTES}");
        return Err(Error::permanent(message).of_kind(FailureKind::TooLarge));
    }
    Ok(state)
}

impl Shown {
    pub(crate) fn set(
        &mut self,
        name: &str,
        value: Result<AttributeValue, AttributeError>,
    ) -> Result<(), Error> {
        let value = value.map_err(|error| match error {
            AttributeError::Value { .. } => AttributeError::Value { name: format!("attribute {name:?} ") },
            error => error,
        });
        let name = AttributeName::new(name).map_err(AttributeError::from).map_err(refused)?;
        let value = value.map_err(refused)?;
        if self.attributes.len() >= ATTRIBUTES_MAX && !self.attributes.contains_key(&name) {
            return Err(refused(AttributeError::TooMany(ATTRIBUTES_MAX + 1)));
        }
        self.attributes.insert(name.clone(), value.clone());
        self.changed.insert(name, Some(value));
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &str) -> Result<(), Error> {
        let name = AttributeName::new(name).map_err(AttributeError::from).map_err(refused)?;
        if self.attributes.remove(&name).is_some() {
            self.changed.insert(name, None);
        }
        Ok(())
    }

    /// What was not told yet.
    pub(crate) fn take(&mut self) -> (Option<Payload>, Vec<Attribute>) {
        let changed = std::mem::take(&mut self.changed).into_iter();
        (self.state.take(), changed.map(|(name, value)| Attribute { name, value }).collect())
    }

    pub(crate) fn all(&self) -> Vec<Attribute> {
        let of = |(name, value): (&AttributeName, &AttributeValue)| Attribute {
            name: name.clone(),
            value: Some(value.clone()),
        };
        self.attributes.iter().map(of).collect()
    }
}

fn refused(error: AttributeError) -> Error {
    Error::permanent(error).of_kind(FailureKind::Invalid)
}

/// The value of an attribute: a text of at most 256 characters, a number or a `bool`. Not for implementing.
pub trait IntoAttribute: sealed::Sealed {
    #[doc(hidden)]
    fn into_attribute(self) -> Result<AttributeValue, AttributeError>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! attribute {
    ($($value:ty),*) => {$(
        impl sealed::Sealed for $value {}

        impl IntoAttribute for $value {
            fn into_attribute(self) -> Result<AttributeValue, AttributeError> {
                let refused = |_| AttributeError::Value { name: String::new() };
                AttributeValue::from_json(Payload::encode(&self).map_err(refused)?.as_str())
            }
        }
    )*};
}

attribute!(&str, &String, String, bool, u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64);
