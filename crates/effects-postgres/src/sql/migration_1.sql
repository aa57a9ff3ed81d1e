-- Version 1: the effects of steps, recorded with them in one transaction.

CREATE TABLE IF NOT EXISTS /*schema.*/everstep_effect_migration (
    version    integer     PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE IF NOT EXISTS /*schema.*/everstep_effect (
    -- The step's idempotency key, and which of its effects, if it has several.
    key         text        NOT NULL,
    part        text        NOT NULL DEFAULT '',
    -- SHA-256 of the canonical JSON of what the caller says is the input; null if it does not say.
    input       bytea       CHECK (octet_length(input) = 32),
    -- JSON, as the step gave it. Null only inside the transaction that writes.
    output      text,
    -- For people.
    workflow    text        NOT NULL,
    instance    text        NOT NULL,
    step        text        NOT NULL,
    attempt     integer     NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (key, part)
);

-- By it the purge finds the oldest.
CREATE INDEX IF NOT EXISTS everstep_effect_recorded_at ON /*schema.*/everstep_effect (recorded_at);

INSERT INTO /*schema.*/everstep_effect_migration (version) VALUES (1) ON CONFLICT DO NOTHING;
