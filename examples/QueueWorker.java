// A queue of jobs with Java's KafkaShareConsumer: it accepts a job that is done, and releases one that failed for a
// passing reason; a job that takes longer than its lock would renew it. `make kafka` fetches the jars.
//
//     java -cp '.cache/kafka-4.3.1/libs/*' examples/QueueWorker.java HOST:PORT
//
// It needs a JDK; the file is compiled when it is run.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class QueueWorker {
    static final int JOBS = 10;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments.length > 0 ? arguments[0] : "localhost:9092";
        String name = UUID.randomUUID().toString();
        String topic = "jobs-" + name;
        String group = "workers-" + name;
        setUp(bootstrap, topic, group);
        send(bootstrap, topic);
        System.out.println(work(bootstrap, topic, group) + " jobs done");
    }

    static void setUp(String bootstrap, String topic, String group) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
            // A new share group reads what is produced from now on, unless it is told to begin with the oldest record.
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
            admin.incrementalAlterConfigs(
                    Map.of(resource, List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET)))).all().get();
        }
    }

    static void send(String bootstrap, String topic) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int job = 0; job < JOBS; job++) {
                producer.send(new ProducerRecord<>(topic, "resize " + job));
            }
        }
    }

    static int work(String bootstrap, String topic, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", "explicit");
        int done = 0;
        try (var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (done < JOBS) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(10))) {
                    // Every job succeeds with its second attempt.
                    boolean succeeds = record.deliveryCount().orElse((short) 1) > 1;
                    consumer.acknowledge(record, succeeds ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE);
                    done += succeeds ? 1 : 0;
                }
                consumer.commitSync().forEach((partition, failure) -> failure.ifPresent(error -> {
                    throw error;
                }));
            }
        }
        return done;
    }
}
