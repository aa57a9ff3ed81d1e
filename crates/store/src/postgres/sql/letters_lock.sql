-- After the heads are locked: those of the letters $1 that nobody has taken. One that somebody else is taking is as good as
-- taken (rule W22); should they fail, it is found again.
-- Index: mailbox_pkey.
SELECT number
FROM mailbox
WHERE number = ANY($1::bigint[])
FOR UPDATE SKIP LOCKED
