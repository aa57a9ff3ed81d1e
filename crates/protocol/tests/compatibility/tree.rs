//! `MessagePack` without its meaning: what another version of the code may have written, taken apart and changed by field.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, SeqAccess, Visitor},
    ser::{SerializeMap, SerializeSeq},
};

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

/// The way from the root to a value: the key of a map, or the index of a list.
pub(crate) type Path = Vec<String>;

impl Tree {
    pub(crate) fn read(bytes: &[u8]) -> Self {
        rmp_serde::from_slice(bytes).expect("an encoded envelope is MessagePack")
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        rmp_serde::to_vec_named(self).expect("a tree always encodes")
    }

    /// The paths of all maps in it.
    pub(crate) fn maps(&self) -> Vec<Path> {
        let mut found = Vec::new();
        if matches!(self, Self::Map(_)) {
            found.push(Path::new());
        }
        for (key, child) in self.children() {
            found.extend(child.maps().into_iter().map(|rest| [vec![key.clone()], rest].concat()));
        }
        found
    }

    /// What lies at a path.
    pub(crate) fn at(&self, path: &[String]) -> Option<&Self> {
        let Some((key, rest)) = path.split_first() else { return Some(self) };
        self.children().into_iter().find(|(name, _)| name == key).and_then(|(_, child)| child.at(rest))
    }

    /// The members of the map at a path; none if there is no map.
    pub(crate) fn members(&mut self, path: &[String]) -> Option<&mut Vec<(String, Tree)>> {
        match (self, path.split_first()) {
            (Self::Map(members), None) => Some(members),
            (Self::Map(members), Some((key, rest))) => {
                members.iter_mut().find(|(name, _)| name == key).and_then(|(_, child)| child.members(rest))
            }
            (Self::List(items), Some((key, rest))) => {
                let index: usize = key.parse().ok()?;
                items.get_mut(index).and_then(|child| child.members(rest))
            }
            _ => None,
        }
    }

    /// The same without one field.
    pub(crate) fn without(&self, map: &[String], field: &str) -> Self {
        let mut changed = self.clone();
        if let Some(members) = changed.members(map) {
            members.retain(|(name, _)| name != field);
        }
        changed
    }

    fn children(&self) -> Vec<(String, &Self)> {
        match self {
            Self::Map(members) => members.iter().map(|(key, child)| (key.clone(), child)).collect(),
            Self::List(items) => {
                items.iter().enumerate().map(|(index, child)| (index.to_string(), child)).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nil => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Unsigned(value) => serializer.serialize_u64(*value),
            Self::Signed(value) => serializer.serialize_i64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Bytes(bytes) => serializer.serialize_bytes(bytes),
            Self::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(item)?;
                }
                list.end()
            }
            Self::Map(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (key, value) in members {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Anything)
    }
}

struct Anything;

impl<'de> Visitor<'de> for Anything {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of an envelope")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Nil)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Signed(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Tree, E> {
        Ok(Tree::Bytes(bytes.to_vec()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Tree::Map(members))
    }
}
