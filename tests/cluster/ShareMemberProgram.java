// A member of a share group with Java's KafkaShareConsumer, which can be killed: prints what happens as JSON lines, as
// share_member_program.py does.
//
//     java ShareMemberProgram BOOTSTRAP GROUP TOPIC NAME RELEASED REJECTED

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareMemberProgram {
    static final FileOutputStream OUT = new FileOutputStream(FileDescriptor.out);
    static final long WORK_MS = 10;

    record Chosen(int partition, long offset, String kind) {
        String json() {
            return "{\"partition\": " + partition + ", \"offset\": " + offset + ", \"kind\": \"" + kind + "\"}";
        }
    }

    public static void main(String[] arguments) throws Exception {
        double released = Double.parseDouble(arguments[4]);
        double rejected = Double.parseDouble(arguments[5]);
        Random randomness = new Random(arguments[3].hashCode());
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", "10");
        try (var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[2]));
            while (true) {
                double sentAt = now();
                List<Chosen> chosen = new ArrayList<>();
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    say("delivered", String.format(Locale.ROOT,
                            "\"value\": %s, \"count\": %d, \"sent_at\": %.6f, \"partition\": %d, \"offset\": %d",
                            record.value(), record.deliveryCount().orElseThrow(), sentAt, record.partition(),
                            record.offset()));
                    double drawn = randomness.nextDouble();
                    AcknowledgeType type = drawn < released ? AcknowledgeType.RELEASE
                            : drawn < released + rejected ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT;
                    consumer.acknowledge(record, type);
                    chosen.add(new Chosen(record.partition(), record.offset(), type.toString()));
                    Thread.sleep(WORK_MS);
                }
                if (chosen.isEmpty()) {
                    continue;
                }
                say("acknowledges", records(chosen));
                List<Integer> good = new ArrayList<>();
                Map<TopicIdPartition, Optional<KafkaException>> result = consumer.commitSync(Duration.ofSeconds(10));
                result.forEach((partition, error) -> {
                    if (error.isEmpty()) {
                        good.add(partition.partition());
                    }
                });
                say("acknowledged", records(chosen.stream().filter(each -> good.contains(each.partition())).toList()));
            }
        }
    }

    static String records(List<Chosen> chosen) {
        return "\"records\": [" + String.join(", ", chosen.stream().map(Chosen::json).toList()) + "]";
    }

    /** Seconds of the clock that Python calls monotonic: both read CLOCK_MONOTONIC on Linux. */
    static double now() {
        return System.nanoTime() / 1e9;
    }

    /** One write for a line, so that other output is not mixed into it. */
    static void say(String event, String facts) throws IOException {
        String line = String.format(Locale.ROOT, "{\"event\": \"%s\", \"at\": %.6f, %s}%n", event, now(), facts);
        OUT.write(line.getBytes(StandardCharsets.UTF_8));
    }
}
