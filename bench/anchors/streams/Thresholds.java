// The anchor of `process` on the JVM: Kafka Streams doing the same work on the same records.
//
// Typed Jackson decode, one context per workflow type, the EMA rule (learners/ema.py, its first
// threshold), a RocksDB store with caching and a changelog, one thread. Prints, once it has seen
// EVENTS records and closed: the nanoseconds from the first record to the last, and to the end of
// the final flush and commit.
//
// java -cp JARS Thresholds.java BROKER STATE_DIRECTORY EVENTS
import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

public class Thresholds {
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Event {
        public String event_type;
        public String tenant;
        public String workflow_type;
        public double confidence;
        public Data data;
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Data {
        public Prediction prediction;
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Prediction {
        public boolean was_correct;
    }

    static final String STORE = "contexts";
    static final ObjectReader READER = new ObjectMapper().readerFor(Event.class);
    static final CountDownLatch DONE = new CountDownLatch(1);
    static long events;
    static volatile long first;
    static volatile long last;

    static class Learn implements Processor<byte[], byte[], Void, Void> {
        private KeyValueStore<String, byte[]> store;

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            store = context.getStateStore(STORE);
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            count();
            try {
                Event event = READER.readValue(record.value());
                if (!"task_complete".equals(event.event_type)) {
                    return;
                }
                String key = event.tenant + "/" + event.workflow_type;
                byte[] held = store.get(key);
                store.put(key, updated(held, event.confidence, event.data.prediction.was_correct));
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        private static synchronized void count() {
            if (seenByAll++ == 0) {
                first = System.nanoTime();
            }
            if (seenByAll == events) {
                last = System.nanoTime();
                DONE.countDown();
            }
        }

        private static long seenByAll;
    }

    static byte[] updated(byte[] held, double confidence, boolean correct) {
        double threshold = 0.92;
        double rate = 0.85;
        double seen = 0;
        double hits = 0;
        if (held != null) {
            ByteBuffer row = ByteBuffer.wrap(held);
            threshold = row.getDouble();
            rate = row.getDouble();
            seen = row.getDouble();
            hits = row.getDouble();
        }
        if (confidence >= threshold) {
            seen += 1;
            hits += correct ? 1 : 0;
        }
        if (seen >= 50) {
            rate = 0.8 * rate + 0.2 * hits / seen;
            double error = rate - 0.85;
            double step = Math.min(0.05, 0.3 * Math.abs(error));
            if (error < -0.05) {
                threshold += step;
            } else if (error > 0.05) {
                threshold -= step;
            } else if (Math.abs(error) > 0.03) {
                threshold -= 0.1 * error;
            }
            threshold = Math.max(0.70, Math.min(0.95, threshold));
            seen = 0;
            hits = 0;
        }
        return ByteBuffer.allocate(32)
            .putDouble(threshold).putDouble(rate).putDouble(seen).putDouble(hits).array();
    }

    public static void main(String[] arguments) throws InterruptedException {
        events = Long.parseLong(arguments[2]);
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "bench-kafka-streams");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put("auto.offset.reset", "earliest");
        Topology topology = new Topology();
        topology.addSource(
            "events", Serdes.ByteArray().deserializer(), Serdes.ByteArray().deserializer(),
            "headstart.events");
        topology.addProcessor("learn", Learn::new, "events");
        topology.addStateStore(
            Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(STORE), Serdes.String(), Serdes.ByteArray())
                .withCachingEnabled().withLoggingEnabled(java.util.Map.of()),
            "learn");
        KafkaStreams streams = new KafkaStreams(topology, settings);
        streams.start();
        DONE.await();
        streams.close();
        long closed = System.nanoTime();
        System.out.println("took " + (last - first) + " " + (closed - first));
    }
}
