//! The schema of the table.

use std::fmt;

/// The name of a schema in PostgreSQL, exactly as written: 1 to 63 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schema(String);

/// A text that is no name of a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name of a schema: it has 1 to 63 bytes and no control characters")]
pub struct SchemaError(String);

impl Schema {
    /// Checks a name.
    pub fn new(name: impl Into<String>) -> Result<Self, SchemaError> {
        let name = name.into();
        let good = (1..=63).contains(&name.len()) && !name.chars().any(char::is_control);
        if good { Ok(Self(name)) } else { Err(SchemaError(name)) }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Schema {
    type Err = SchemaError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::new(name)
    }
}

/// Quoted, as SQL has it.
impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.replace('"', "\"\""))
    }
}

/// Puts the schema to our names in a statement, which has a place for it. Without one, the connection's search path decides.
pub(crate) fn of(sql: &str, schema: Option<&Schema>) -> String {
    sql.replace("/*schema.*/", &schema.map(|schema| format!("{schema}.")).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_quoted_and_checked() {
        let schema = Schema::new("bil\"ling").unwrap();
        assert_eq!(of("FROM /*schema.*/t", Some(&schema)), "FROM \"bil\"\"ling\".t");
        assert_eq!(of("FROM /*schema.*/t", None), "FROM t");
        for bad in ["", "a\0b", "a\nb", &"x".repeat(64)] {
            assert!(Schema::new(bad).is_err(), "{bad:?}");
        }
    }
}
