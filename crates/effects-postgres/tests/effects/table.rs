//! The table: made, found missing, and purged.

use everstep_postgres::{Schema, migrate, migration, name, once, purge};
use everstep_testbed::Installation;
use futures::future::join_all;

use super::rig::{Rig, connect, pay, step};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_the_migration_may_be_run_again_and_by_several_at_once() {
    let installation = Installation::fresh("everstep_l12").unwrap();
    let schema = Schema::new("bil\"ling").unwrap();
    let runs = (0..8).map(|_| async {
        let mut client = connect(&installation.postgres).await;
        migrate(&mut client, Some(&schema)).await.unwrap();
        migrate(&mut client, None).await.unwrap();
    });
    join_all(runs).await;
    installation.sql(&migration(Some(&schema))).unwrap();
    for table in ["everstep_effect_migration", "\"bil\"\"ling\".everstep_effect_migration"] {
        assert_eq!(installation.sql(&format!("SELECT version FROM {table}")).unwrap(), "1");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_a_table_that_is_missing_is_said_and_may_be_made_meanwhile() {
    let installation = Installation::fresh("everstep_l12").unwrap();
    let mut client = connect(&installation.postgres).await;
    let missing = once(step(1, 1), &mut client, async |tx| pay(tx, 1).await).await.unwrap_err();
    assert_eq!((missing.name(), missing.is_permanent()), (name::DATABASE, false));
    assert!(!missing.is_without_effect(), "what else the step has done nobody knows (rule L9)");
    assert!(missing.message().contains("everstep effects-migration"), "{missing}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l13_old_effects_are_purged_in_bounded_batches() {
    let rig = Rig::new().await;
    let client = rig.client().await;
    let fill = "INSERT INTO everstep_effect (key, output, workflow, instance, step, attempt, recorded_at)
                SELECT n, 'null', 'w', 'i', 's', 1, now() - make_interval(days => n) FROM generate_series(1, 100) n";
    client.batch_execute(fill).await.unwrap();
    let watch = "CREATE TABLE batch (rows bigint);
                 CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN INSERT INTO batch SELECT count(*) FROM gone; RETURN NULL; END $$;
                 CREATE TRIGGER noted AFTER DELETE ON everstep_effect REFERENCING OLD TABLE AS gone
                 FOR EACH STATEMENT EXECUTE FUNCTION noted()";
    client.batch_execute(watch).await.unwrap();
    assert_eq!(purge(&client, None, "90 days 12 hours", 3).await.unwrap(), 10);
    assert_eq!(purge(&client, None, "90 days 12 hours", 3).await.unwrap(), 0);
    let batches = client.query("SELECT rows FROM batch ORDER BY rows", &[]).await.unwrap();
    let batches: Vec<i64> = batches.iter().map(|row| row.get(0)).collect();
    assert_eq!(batches, [0, 1, 3, 3, 3], "each batch is a statement of its own");
    let oldest = "SELECT count(*), max(key::int) FROM everstep_effect";
    let row = client.query_one(oldest, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i32>(1)), (90, 90));
    let others = join_all((0..4).map(|_| async {
        let client = rig.client().await;
        purge(&client, None, "1 hour", 7).await.unwrap()
    }));
    assert_eq!(others.await.iter().sum::<u64>(), 90, "several at once share the work");
    assert!(purge(&client, None, "soon", 1).await.unwrap_err().is_permanent());
}
